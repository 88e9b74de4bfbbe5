"""Deployed networks at work: a packed file in, answers out, in integers and without torch."""

from lapis.runtime.engine import Engine
from lapis.runtime.evaluate import Evaluation, evaluate, merge
from lapis.runtime.session import Prediction, Session

__all__ = ["Engine", "Evaluation", "Prediction", "Session", "evaluate", "merge"]

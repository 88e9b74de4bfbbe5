"""Deployed networks at work: a packed file in, answers out, in integers and without torch."""

from lapis.runtime.engine import Engine
from lapis.runtime.evaluate import Evaluation, evaluate, merge
from lapis.runtime.session import Prediction, Session, find_model, packaged_models

__all__ = ["Engine", "Evaluation", "Prediction", "Session", "evaluate", "find_model", "merge", "packaged_models"]

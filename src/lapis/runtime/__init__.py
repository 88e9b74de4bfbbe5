"""Run deployed networks: in integers and without torch."""

from lapis.runtime.accuracy import evaluate_session
from lapis.runtime.engine import Engine
from lapis.runtime.session import Prediction, Session

__all__ = ["Engine", "Prediction", "Session", "evaluate_session"]

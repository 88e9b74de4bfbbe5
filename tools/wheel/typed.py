# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""What a user of the installed wheel writes; tools/wheel/check.sh lets mypy and pyright read it, both strictly."""

import numpy as np
from numpy.typing import NDArray

import lapis

config: lapis.LapisConfig = lapis.preset("lapis_tiny", image_size=96).replace(classes=5)
model: lapis.Model = lapis.load("lapis_tiny.cifar10")
session: lapis.Session = model.session(threads=2)
logits: NDArray[np.float32] = session.run(np.zeros((2, 32, 32, 3), np.uint8))
integers: NDArray[np.int64] = session.run_integers("photo.jpg")
for answers in session.predict_each(["photo.jpg", "other.jpg"], top_k=1):
    best: lapis.Prediction = answers[0]
    label: str = best.label
    score: float = best.score
rule: lapis.Preprocess = model.preprocess
names: dict[str, str] = lapis.list_models()
try:
    print(session.nothing)  # type: ignore[attr-defined]  # both must see that there is no such thing
except lapis.LapisError as error:
    print(error)

"""What happens to pixels on their way into a network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lapis.data import transforms
from lapis.data.transforms import OPERATIONS, rand_augment


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_a_centred_shift_changes_nothing_and_others_move_the_image() -> None:
    pixels, middle = noise(2, 6, 5, 3), np.array([2, 2])
    assert (transforms.shifted_crops(pixels, middle, middle, 2) == pixels).all()
    moved = transforms.shifted_crops(pixels, np.array([0, 4]), middle, 2)
    assert (moved[0, 2:] == pixels[0, :-2]).all()
    assert (moved[1, :-2] == pixels[1, 2:]).all()


def test_a_flip_mirrors_only_the_chosen() -> None:
    pixels = noise(2, 4, 5, 3)
    once = transforms.flipped(pixels, np.array([True, False]))
    assert (once[0] == pixels[0, :, ::-1]).all()
    assert (once[1] == pixels[1]).all()


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9))
def test_a_random_crop_has_the_size_asked_for_whatever_the_image(seed: int, height: int, width: int) -> None:
    crop = transforms.random_resized_crop(noise(height, width, 3), 6, 0.08, np.random.default_rng(seed))
    assert crop.shape == (6, 6, 3)


@given(st.integers(0, 10_000), st.floats(0, 0.3), st.booleans())
def test_targets_stay_distributions_under_any_mix(seed: int, smoothing: float, cut: bool) -> None:
    mix = transforms.draw_mix(np.random.default_rng(seed), 1.0, 0.0 if cut else 0.8, 1.0 if cut else 0.0, 16)
    assert mix is not None
    assert (mix.box is not None) == cut
    rows = transforms.soft_targets(torch.tensor([0, 1, 2, 2]), 3, smoothing, mix)
    assert torch.allclose(rows.sum(1), torch.ones(4))
    assert rows.min() >= 0


def test_the_share_of_a_cutmix_is_the_share_of_pixels_kept() -> None:
    ones = torch.cat([torch.zeros(2, 3, 16, 16), torch.ones(2, 3, 16, 16)])
    for seed in range(20):
        mix = transforms.draw_mix(np.random.default_rng(seed), 1.0, 0.0, 1.0, 16)
        assert mix is not None
        assert float(1 - transforms.mix_images(ones, mix)[0].mean()) == pytest.approx(mix.share)


def test_mixup_blends_each_image_with_the_one_half_a_batch_away() -> None:
    images = torch.arange(4.0).view(4, 1, 1, 1)
    assert transforms.mix_images(images, transforms.Mix(0.75)).flatten().tolist() == [0.5, 1.5, 1.5, 2.5]


def test_no_mix_where_its_probability_or_both_alphas_are_zero() -> None:
    for seed in range(50):
        generator = np.random.default_rng(seed)
        assert transforms.draw_mix(generator, 0.0, 1.0, 1.0, 8) is None
        assert transforms.draw_mix(generator, 1.0, 0.0, 0.0, 8) is None


def test_mix_prob_is_the_share_of_batches_mixed() -> None:
    drawn = [transforms.draw_mix(np.random.default_rng(seed), 0.1, 0.8, 1.0, 8) is not None for seed in range(2000)]
    # Binomial: three standard deviations are 0.02.
    assert abs(np.mean(drawn) - 0.1) < 0.02


def test_erasing_blanks_a_box_in_chosen_images_only() -> None:
    images = torch.ones(40, 3, 16, 16)
    transforms.erase(images, [np.random.default_rng(seed) for seed in range(40)], 0.5)
    blank = (images == 0).float().mean(dim=(1, 2, 3))
    touched = blank > 0
    assert 8 < int(touched.sum()) < 32
    assert float(blank.max()) <= 0.4
    untouched = torch.ones(2, 3, 8, 8)
    assert bool((transforms.erase(untouched, [np.random.default_rng(0)] * 2, 0.0) == 1).all())


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_augmentation_keeps_size_and_type(name: str) -> None:
    from PIL import Image

    image = Image.fromarray(noise(9, 11, 3))
    for strength in (0.0, 1.0):
        for sign in (-1, 1):
            result = OPERATIONS[name](image, strength, sign)
            assert (result.size, result.mode) == (image.size, "RGB")


def test_rand_augment_depends_on_its_generator_alone() -> None:
    pixels = noise(12, 12, 3)
    one, two = (rand_augment(pixels, np.random.default_rng(3), 2) for _ in range(2))
    assert (one == two).all()
    others = [rand_augment(pixels, np.random.default_rng(seed), 2) for seed in range(8)]
    assert any((one != other).any() for other in others)

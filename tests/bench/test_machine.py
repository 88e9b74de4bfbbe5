"""A number is kept with the machine that it was measured on."""

from __future__ import annotations

import pytest

from lapis import native
from lapis.bench.machine import machine, processor, slug, thread_count


def test_the_facts_name_processor_cores_system_and_instruction_set() -> None:
    facts = machine()
    assert list(facts) == ["machine", "cores", "system", "isa"]
    assert facts["machine"] == processor() != ""
    assert int(facts["cores"]) >= 1
    assert facts["isa"] == native.isa()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Intel(R) Xeon(R) Processor", "intel-r-xeon-r-processor"),
        ("AMD EPYC", "amd-epyc"),
        ("../etc", "etc"),
        ("", "unknown"),
    ],
)
def test_a_slug_is_safe_in_a_file_name(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_one_thread_is_not_said_in_the_plural() -> None:
    assert [thread_count(count) for count in (1, 2)] == ["1 thread", "2 threads"]

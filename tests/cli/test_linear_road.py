"""`penstock linear-road`: files are generated, and answers are compared with the expected ones."""

from __future__ import annotations

from pathlib import Path

FEW = ("--segments", "50-52", "--begin", 9000, "--seconds", 240)


def test_generate_and_validate(penstock, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = penstock("linear-road", "generate", *FEW, "--copies", 2, "--seed", 3, "--output", tmp_path)
    assert (code, out) == (0, "")
    assert "rows of input.csv" in err
    files = ("--tolls", tmp_path / "tolls.csv", "--segments", tmp_path / "segments.csv")
    validate = ("linear-road", "validate", tmp_path / "input.csv", *files)
    answers = tmp_path / "answers.csv"
    assert penstock(*validate, "--output", answers) == (0, "", "")
    code, out, err = penstock(*validate, "--answers", answers)
    assert code == 0
    assert "toll notices" in out
    assert "0 answers after more than 5 s" in err
    lines = answers.read_text().splitlines()
    kinds = [line.split(",")[0] for line in lines]
    assert set(kinds) == {"0", "2", "3", "4"}
    answers.write_text("\n".join([*lines[1:], "3,9001,9001,77,1"]))
    code, out, err = penstock(*validate, "--answers", answers)
    assert code == 1
    assert "missing of type 0: vid " in err
    assert "extra of type 3: time 9001, qid 77, expenditure 1" in err
    code, out, _ = penstock(*validate, "--answers", answers, "--lav", "spec")
    assert code == 1


def test_what_cannot_be_done_is_told(penstock, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    cases = (
        (("generate", "-o", tmp_path, "--segments", "7"), "--segments 7"),
        (("generate", "-o", tmp_path, "--begin", 20_000), "--begin 20000"),
        (("validate", tmp_path / "input.csv"), "--answers"),
        (("validate", tmp_path / "none.csv", "--output", tmp_path / "a"), "none.csv"),
    )
    for arguments, told in cases:
        code, out, err = penstock("linear-road", *arguments)
        assert (code, out) == (2, "")
        assert told in err

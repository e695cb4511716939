"""Setups are read whole or refused with every mistake in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock_bench.measure.setup.describe import BEGIN, END, described
from penstock_bench.measure.setup.model import Setup
from penstock_bench.measure.setup.read import parse_setup, read_setup, resolved
from penstock_bench.workloads import micro

ROOT = Path(__file__).parents[3]

TEXT = """
name = "x"

[parameters]
n = 3
rate = 100
word = "SUM"

[streams.S]
columns = { id = "INT", "a1..a${n}" = "DOUBLE", ts = "TIMESTAMP" }

[[drivers]]
name = "d"

[drivers.fields.S]
id = { generator = "uniform", min = 1, max = 100 }
"a1..a${n}" = { generator = "normal", mean = 1, stdev = 2 }

[[drivers.phases]]
rate = "${rate}"
duration = "2 s"

[queries."q1..q${n}"]
text.penstock = "SELECT ${word}(a1) AS v FROM S [ROWS ${100 + (i - 1) * 10}]"
"""


def read(text: str = TEXT, **parameters: int | str) -> Setup:
    return parse_setup(resolved(text, "x.toml", Path("."), parameters), "x.toml")


def test_parameters_and_keys_that_stand_for_many() -> None:
    setup = read(n=2, word="MAX")
    assert list(setup.streams["S"].columns) == ["id", "a1", "a2", "ts"]
    assert [query.text["penstock"] for query in setup.queries.values()] == [
        "SELECT MAX(a1) AS v FROM S [ROWS 100]",
        "SELECT MAX(a1) AS v FROM S [ROWS 110]",
    ]
    assert setup.drivers[0].phases[0].rate == 100
    assert setup.drivers[0].phases[0].duration == 2_000_000


def test_a_value_given_as_text_takes_the_type_of_the_declared_one() -> None:
    assert read(rate="2_500").drivers[0].phases[0].rate == 2500


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('rate = "${rate}"', "rat = 3", "drivers[0].phases[0].rat: unknown field; did you mean 'rate'?"),
        ('rate = "${rate}"', "rate = -3", "drivers[0].phases[0].rate: -3 is no rate"),
        ('rate = "${rate}"', 'rate = "max"', "phases[0].event_rate: rate = 'max' needs it"),
        ('rate = "${rate}"', "rate = 1\nevent_rate = 3", "phases[0].event_rate: is for rate = 'max'"),
        ('"2 s"', '"2 x"', "phases[0].duration: is no length of time"),
        ('duration = "2 s"', "", "phases[0]: a phase ends after a duration or after a number of events"),
        ('duration = "2 s"', 'duration = "2 s"\nevents = 5', "phases[0]: only with rate = 'max' can a phase have both"),
        ('duration = "2 s"', "events = 5\nend_rate = 7", "phases[0].end_rate: a rate that changes needs a duration"),
        ("mean = 1", "mean = nan", "drivers[0].fields.S.a1.mean: should be a finite number"),
        ("stdev = 2", "stdev = -2", "drivers[0].fields.S.a1.stdev: should be greater than or equal to 0, not -2"),
        ('"uniform", min = 1', '"uniform", mni = 1', "drivers[0].fields.S.id.mni: unknown field; did you mean 'min'?"),
        ('"normal"', '"norml"', "drivers[0].fields.S.a1.generator: there are sequential, uniform, normal"),
        ("min = 1, max = 100", "min = 1, max = 1e10", "drivers[0].fields.S.id: 1e+10 does not fit into INT"),
        ('"INT"', '"INTT"', "streams.S.columns.id: 'INTT' is no type; there are BOOLEAN"),
        ('"INT"', '"BOOLEAN"', "drivers[0].fields.S.id: generator 'uniform' makes no BOOLEAN"),
        ('ts = "TIMESTAMP"', 'ts = "INT"', "streams.S: time = 'ts' must name a TIMESTAMP column"),
        ("id = {", "idd = {", "drivers[0].fields.S.idd: is no column that is made"),
        ("[drivers.fields.S]", "[drivers.fields.T]", "drivers[0].fields.T: there is no stream 'T'; there are S"),
        ("${100", "${100 + m", "queries.q1.text.penstock: ${100 + m + (i - 1) * 10}: there is no parameter 'm'"),
        ("${100", "${__import__('os')", "is no parameter and no sum of parameters"),
        ("${100", "${2 ** 100", "is no parameter and no sum of parameters"),
        ("a1..a${n}", "a1..a99999", "write a1..a9 for the keys a1 to a9, at most 10,000"),
        ('name = "d"', 'name = "d"\ncopies = 2', "streams.S.lateness: 2 drivers send it side by side"),
        ('name = "d"', 'name = "../d"', "drivers[0].name: '../d' is no name"),
        ('name = "x"', 'name = "x"\nsinks = []', "queries.q1: no sink takes its results"),
        ('name = "x"', 'name = "x"\n[[sinks]]\nname = "s"\nqueries = ["z"]', "sinks[0].queries: there is no query 'z'"),
        ('name = "x"', "name = 3", "name: should be a valid string, not 3"),
        ('name = "x"', 'name = "x', "x.toml: is no TOML"),
        (
            "[[drivers.phases]]",
            '[drivers.replay]\nfile = "f"\nstream = "S"\n[[drivers.phases]]',
            "drivers[0].replay: pace = 'recorded' needs time_column",
        ),
        (
            'name = "x"',
            'name = "x"\n[quick]\nwat = 1',
            "quick.wat: there is no such parameter; there are n, rate, word",
        ),
        ('duration = "2 s"', "duration = inf", "drivers[0].phases[0].duration: is longer than a century"),
        ('duration = "2 s"', "duration = nan", "drivers[0].phases[0].duration: is longer than a century"),
        ('"2 s"', '"1000000000 h"', "drivers[0].phases[0].duration: is longer than a century"),
        ('duration = "2 s"', f"events = 1{'0' * 400}", "drivers[0].phases[0].events: should be less"),
        ("rate = 100", "rate = 1e300", "drivers[0].phases[0].rate: 1e+300 is no rate"),
        ("rate = 100", "rate = 1e-300", "drivers[0].phases[0].rate: 1e-300 is no rate"),
        ('name = "d"', 'name = "d"\ncopies = 1000000', "drivers[0].copies: should be less than or equal to 1000"),
        ('name = "d"', f'name = "{"d" * 300}"', "drivers[0].name: string should have at most 100 characters"),
        ('name = "x"', f'name = "x"\ny = {"[" * 5000}{"]" * 5000}', "cannot be read: maximum recursion depth"),
        ("rate = 100", f"rate = {'9' * 5000}", "cannot be read: Exceeds the limit (4300 digits)"),
        ("q1..q${n}", f"q1..q{'9' * 5000}", "write a1..a9 for the keys a1 to a9"),
        (
            "[[drivers.phases]]",
            '[drivers.replay]\nfile = "a\\u0000b"\nstream = "S"\n[[drivers.phases]]',
            "drivers.replay.file: is no path",
        ),
        ("n = 3", "n = [3]", "parameters.n: must be a number, a text, true or false"),
    ],
)
def test_a_mistake_is_told_with_its_place(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError) as refused:
        read(TEXT.replace(old, new))
    assert said in str(refused.value)
    assert str(refused.value).startswith("x.toml: ")


def test_a_replay_of_a_name_that_no_file_can_have() -> None:
    replay = f'[drivers.replay]\nfile = "{"f" * 5000}"\nstream = "S"\npace = "max"\n'
    head, _, rest = TEXT.partition("[drivers.fields.S]")
    with pytest.raises(InputError, match=r"drivers\[0\]\.replay\.file: there is no file"):
        read(f"{head}{replay}{rest[rest.index('[queries') :]}")


def test_a_parameter_that_is_not_there() -> None:
    with pytest.raises(InputError, match="there is no parameter 'speed'; the setup has n, rate, word"):
        read(speed=3)


def test_another_adapter_leaves_the_options_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(TEXT + '\n[system.options]\nmemory = "8MB"\n')
    assert read_setup(file, adapter="embedded").system.options == {"memory": "8MB"}
    assert read_setup(file, adapter="esper").system.options == {}
    file.write_text(file.read_text() + '[system.others.esper]\nheap = "1g"\n')
    assert read_setup(file, adapter="embedded").system.options == {"memory": "8MB"}
    assert read_setup(file, adapter="esper").system.options == {"heap": "1g"}
    assert read_setup(file, adapter="flink").system.options == {}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nope\.toml: cannot be read: No such file"):
        read_setup(tmp_path / "nope.toml")


def test_a_replay_is_looked_for_beside_the_setup(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    replay = '[drivers.replay]\nfile = "data.csv"\nstream = "S"\ntime_column = "ts"\n'
    phases = TEXT.index("[[drivers.phases]]")
    text = TEXT[:phases] + replay + TEXT[TEXT.index("[queries") :]
    file.write_text(text)
    with pytest.raises(InputError, match=r"drivers\[0\].replay.file: there is no file"):
        read_setup(file)
    (tmp_path / "data.csv").write_text("id,a1,a2,a3,ts\n")
    replay_read = read_setup(file).drivers[0].replay
    assert replay_read is not None
    assert replay_read.file == tmp_path / "data.csv"


@pytest.mark.parametrize("name", micro.names())
def test_every_microbenchmark_can_be_read_with_all_values_of_its_series(name: str) -> None:
    setup = read_setup(micro.setup_file(name))
    read_setup(micro.setup_file(name), setup.quick)
    for series in setup.series:
        for parameter, values in series.vary.items():
            for value in values:
                read_setup(micro.setup_file(name), {**series.fixed, parameter: value})


def test_every_setup_that_comes_along_has_its_place_in_the_list() -> None:
    assert sorted(path.stem for path in micro.DIRECTORY.glob("*.toml")) == sorted(micro.names())


def test_the_page_has_the_fields_of_the_model() -> None:
    page = (ROOT / "docs" / "setup-files.md").read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == described(), (
        "run: python -m penstock_bench.measure.setup.describe docs/setup-files.md"
    )


def test_the_example_of_the_page_is_a_setup() -> None:
    page = (ROOT / "docs" / "setup-files.md").read_text(encoding="utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    assert read(example).name == "filter"

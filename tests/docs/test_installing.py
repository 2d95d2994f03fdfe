"""What the pages say of installing fits the project: names, dependencies, versions, Pythons."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib

import pytest
from click.testing import CliRunner

from storage_core._version import __version__
from storage_core.cli.app import cli
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = {re.split(r"[<>=\[]", each)[0] for each in PROJECT["dependencies"]}
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "conf").iterdir()])


@pytest.mark.parametrize(
    ("page", "before"),
    [
        ("docs/deployment.md", "The dependencies are "),
        ("docs/connector.md", "this package and what it needs ("),
        ("conf/spark-defaults.conf", "It must have cursus_spark, "),
    ],
)
def test_lists_of_dependencies_are_whole(page: str, before: str) -> None:
    text = (ROOT / page).read_text().replace("\n# ", " ")
    found = re.split(r"[.;)]", text.partition(before)[2])[0]
    assert set(re.split(r", | and ", found)) == DEPENDENCIES


def test_wheels_and_zips_have_the_names_that_are_built() -> None:
    for page in PAGES:
        text = page.read_text()
        wheels = set(re.findall(r"[\w.-]+\.whl", text))
        assert wheels <= {f"cursus_spark-{__version__}-py3-none-any.whl"}, page.name
        assert set(re.findall(r"[\w-]*cursus[\w-]*\.zip", text)) <= {"cursus-spark.zip"}, page.name


def test_no_page_installs_by_a_name_that_is_not_published_without_saying_so() -> None:
    for page in PAGES:
        for paragraph in page.read_text().split("\n\n"):
            if re.search(r"pip3? install [^\n]*\bcursus-spark\b(?!\.)", paragraph):
                assert "publish" in paragraph or "twine upload" in paragraph, (page.name, paragraph)


def test_every_extra_that_a_page_names_is_there() -> None:
    known = set(PROJECT["optional-dependencies"])
    for page in PAGES:
        for found in re.findall(r"(?:\.whl|cursus-spark|'\.)\[([\w,]+)\]", page.read_text()):
            assert set(found.split(",")) <= known, page.name


def test_the_image_of_the_page_has_a_python_that_will_do() -> None:
    image = re.findall(r"^```text\n(FROM .*?)^```", DEPLOYMENT, re.M | re.S)[0]
    [version] = re.findall(r"uv venv [^\n]*--python (\d+\.\d+)", image)
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    [made] = re.findall(r"uv venv [^\n]* (/\S+)", image)
    assert f"--python {made}/bin/python" in image
    assert f"ENV PYSPARK_PYTHON={made}/bin/python" in image
    # The user of the image reads neither root's home nor what only root may.
    assert re.search(r"ENV UV_PYTHON_INSTALL_DIR=/(?!root)", image)
    assert image.rstrip().endswith("USER spark")


def test_the_service_of_the_operations_page_starts_and_runs() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    [text] = re.findall(r"^```ini\n(.*?)^```", page, re.M | re.S)
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    assert unit["Service"]["User"]
    assert unit["Install"]["WantedBy"]
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/cursus")
    # As it stands it would run for ever; the parser takes every word before --help ends it.
    done = CliRunner().invoke(cli, [*words, "--help"])
    assert done.exit_code == 0, done.output

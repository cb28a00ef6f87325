"""The documentation says what the code does: generated parts are current, names exist, examples run, links resolve."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure import config
from tenure.core import errors, profiles, settings
from tenure.core.errors import Refused
from tenure.core.record import Record
from tenure.core.settings import Settings
from tenure.core.story import SENTENCES
from tenure.engine.verb import VERBS
from tools import docs

FILES = {path.relative_to(docs.ROOT).as_posix(): path.read_text(encoding="utf-8") for path in docs.files()}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BACKTICKS = re.compile(r"`([^`]+)`")

docs.modules()


def named_in(file: str) -> set[str]:
    """Everything a document puts into backticks."""
    return set(BACKTICKS.findall(re.sub(r"^```.*?^```$", "", FILES[file], flags=re.MULTILINE | re.DOTALL)))


def fenced(file: str, language: str) -> list[str]:
    """The code blocks of one language in a document."""
    return [text for found, text in FENCE.findall(FILES[file]) if found == language]


# -- generated parts --------------------------------------------------------------------------------------------------


def test_check_of_the_committed_documents_finds_them_current() -> None:
    run = subprocess.run([sys.executable, "tools/docs.py", "--check"], cwd=docs.ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_check_of_a_changed_table_finds_it_stale() -> None:
    text = FILES["docs/refusals.md"]
    assert docs.renewed(text) == text
    assert docs.renewed(text.replace("`lease_lost`", "`lease_gone`")) == text


def test_every_part_is_used_once() -> None:
    used = [name for text in FILES.values() for name in re.findall(r"<!-- generated: (\S+) -->", text)]
    assert sorted(used) == sorted(docs.PARTS)


def test_explain_of_a_setting_exists_for_every_setting_and_no_other() -> None:
    known = {
        f"{section}.{key}"
        for section, table in (
            ("task_lease", settings.LEASE_RULES),
            ("tenure", settings.TENURE_RULES),
            ("design", settings.DESIGN_RULES),
            ("task_types", settings.TASK_TYPE_RULES),
        )
        for key in table
    }
    assert known == docs.MEANINGS.keys()
    assert known <= named_in("docs/settings.md")


def test_explain_of_a_profile_key_exists_for_every_key_and_no_other() -> None:
    assert set(profiles.KEYS) == docs.PROFILE_MEANINGS.keys()
    assert {*profiles.KEYS, *profiles.BUILT_IN} <= named_in("docs/settings.md")


def test_explain_of_an_exit_status_exists_for_every_status() -> None:
    assert docs.EXITS.keys() == {name for name in vars(errors) if name.startswith("EXIT_")}


def test_every_refusal_code_is_documented() -> None:
    assert errors.CODES.keys() <= named_in("docs/refusals.md")


def test_every_verb_is_documented() -> None:
    assert VERBS.keys() <= named_in("docs/verbs.md")


def test_every_verb_says_what_it_does_in_one_line() -> None:
    for verb in VERBS.values():
        first = (verb.__doc__ or "").partition("\n")[0]
        assert first.endswith("."), f"{verb.name}: {first!r}"


def test_every_kind_of_event_is_written_told_and_documented() -> None:
    assert docs.recorded().keys() == SENTENCES.keys()
    assert SENTENCES.keys() <= named_in("docs/events.md")


def test_trace_has_the_numbers_of_the_specification() -> None:
    text = docs.trace()
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:]]
        for line in text.splitlines()
        if (cells := line.split("|"))[1:]
    }
    assert [rows[second][3] for second in ("0", "15", "40", "55", "180")] == ["80", "95", "160", "175", "260"]
    assert rows["174.999"][0].startswith("live")
    assert rows["`time_spent_minutes`"][0] == "`2.9`"
    assert "silent for 120 s" in text
    assert "25 × 1.5 is 37.5 s" in text


# -- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [file for file in FILES if fenced(file, "python")])
def test_example_in_python_runs(file: str, tmp_path: Path) -> None:
    for example in fenced(file, "python"):
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout


def test_example_in_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    example = fenced("README.md", "python")[0]
    assert len(example.splitlines()) <= 15
    run = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == fenced("README.md", "text")[0]


@pytest.mark.parametrize("language", ["json", "toml"])
def test_example_of_settings_loads(language: str, tmp_path: Path) -> None:
    found = fenced("docs/settings.md", language)
    assert found
    for example in found:
        path = tmp_path / f"example.{language}"
        path.write_text(example, encoding="utf-8")
        loaded = config.settings_from_file(path)
        assert isinstance(loaded, Settings), loaded


def test_example_of_the_specification_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "example.json"
    path.write_text(fenced("docs/settings.md", "json")[0], encoding="utf-8")
    assert config.settings_from_file(path) == settings.DEFAULTS


@pytest.mark.parametrize(
    "document",
    [
        {"task_lease": {"min_lease_hours": 2, "max_lease_hours": 1, "default_hours": 2}},
        {"task_lease": {"default_hours": 0.5}},
        {"task_lease": {"default_hours": 0.01}},
        {"task_lease": {"grace_period_minutes": 5}},
        {"task_lease": {"warning_hours": 1}},
        {"task_lease": {"stuck_threshold_renewals": 11}},
        {"profiles": {"p": {"base": "agent", "ttl_s": 60}}},
        {"profiles": {"p": {"base": "agent", "extends": "heartbeat"}}},
        {"profiles": {"p": {"base": "worker", "max_attempts": 2, "quarantine_after": 3}}},
        {"profiles": {"agent": {"base": "worker"}}},
        {"tenure": {"hung_after": 60}},
    ],
)
def test_settings_that_the_document_calls_refused_are(document: dict[str, Any]) -> None:
    refused = settings.parse(document)
    assert isinstance(refused, Refused)
    assert refused.code == "invalid_settings"


# -- names, links, make -----------------------------------------------------------------------------------------------


def map_rows() -> list[tuple[str, str]]:
    """Specification and our side, for every row of the map's tables of names."""
    rows = []
    for section in FILES["docs/specification-map.md"].split("\n## ")[1:]:
        for line in section.partition("`task_queue` has no table")[0].splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if len(cells) == 3 and cells[1] not in ("here", "---"):
                rows.append((cells[0], cells[1]))
    return rows


def resolve(name: str) -> object:
    """The thing behind a dotted name under `tenure.`; a record's field counts although it may have no default."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["tenure", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            is_field = isinstance(found, type) and issubclass(found, Record) and part in found._fields
            found = part if is_field else getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize(("specified", "ours"), map_rows())
def test_map_of_the_specification_names_what_exists(specified: str, ours: str) -> None:
    names = BACKTICKS.findall(ours)
    assert names or ours == "not built yet", f"{specified} leads nowhere"
    for name in names:
        resolve(name)


@pytest.mark.parametrize("file", FILES)
def test_links_resolve(file: str) -> None:
    folder = (docs.ROOT / file).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", FILES[file]):
        path, _, anchor = target.partition("#")
        assert "://" not in target, f"{target} leads outside"
        there = (folder / path).resolve() if path else docs.ROOT / file
        assert there.exists(), f"{file} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_document_is_linked_from_the_readme() -> None:
    for file in FILES:
        assert file == "README.md" or f"]({file})" in FILES["README.md"]


@pytest.mark.parametrize("file", FILES)
def test_paths_and_targets_named_in_a_document_exist(file: str) -> None:
    makefile = (docs.ROOT / "Makefile").read_text(encoding="utf-8")
    for name in named_in(file):
        if name.startswith(("tests/", "tools/", "docs/", "src/")):
            assert (docs.ROOT / name).exists(), f"{file} names {name}"
        if name.startswith("make "):
            target = name.split()[1]
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{file} names {name}"
        if name.startswith("tenure.") and name.removeprefix("tenure.") not in settings.TENURE_RULES:
            assert name == "tenure." or resolve(name.removeprefix("tenure.")) is not None

"""What `--json` prints, held to the schema that is published for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from _cli_program import campaign, run
from autoscout.cli.documents import DryRunDocument, ErrorDocument, ResultDocument, documents_schema

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "reference" / "output.schema.json").read_text())


def checked(text: str) -> Any:
    document = json.loads(text)
    jsonschema.validate(document, SCHEMA)
    return document


def test_the_published_schema_is_that_of_the_code() -> None:
    assert documents_schema() == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_result_a_report_and_a_dry_run_keep_to_the_schema(tmp_path: Path) -> None:
    file = campaign(tmp_path, budget={"trials": 3}, finals={"finalists": 1, "rounds": 1})
    planned = checked(run(tmp_path, "tune", file, "--dry-run", "--json").stdout)
    DryRunDocument.model_validate(planned)
    assert not (tmp_path / "autoscout_results").exists()
    done = run(tmp_path, "tune", file, "--json")
    assert done.returncode == 0, done.stderr
    result = ResultDocument.model_validate(checked(done.stdout))
    assert result.stop == "trial budget used"
    assert result.files is not None
    again = checked(run(tmp_path, "report", result.files.folder, "--json").stdout)
    assert again["answer"] == result.answer
    kept = json.loads((tmp_path / "autoscout_results" / "numbers" / "report.json").read_text())
    ResultDocument.model_validate(kept)


@pytest.mark.parametrize("arguments", [("tune", "nothing.yaml"), ("report", "nowhere"), ("tune", "command", "--no-such-flag")])
def test_errors_keep_to_the_schema(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    refused = run(tmp_path, *arguments, "--json")
    assert refused.returncode == 2
    assert ErrorDocument.model_validate(checked(refused.stdout)).faults

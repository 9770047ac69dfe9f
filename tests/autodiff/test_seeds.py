"""Every claim of the pages that puregraph follows is checked, and docs/seeds.md is made of them."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "seeds.py"))
PAGES = SCRIPT["pages"]()
CLAIMS = [(page, claim) for page in PAGES for claim in page.claims]
LEAST = 121  # claims


@pytest.mark.parametrize("claim", [claim for _, claim in CLAIMS], ids=[c.check.__name__ for _, c in CLAIMS])
def test_a_claim_holds_or_differs_as_the_page_says(claim):
    claim.check()


def test_the_page_of_seeds_is_current():
    assert SCRIPT["PAGE"].read_text(encoding="utf-8") == SCRIPT["text"](PAGES), "run python scripts/seeds.py"


def test_claims_are_many_and_each_is_made_once_by_a_check_of_its_own():
    assert len(CLAIMS) >= LEAST
    assert len({(page.title, claim.subject, claim.text) for page, claim in CLAIMS}) == len(CLAIMS)
    assert len({claim.check for _, claim in CLAIMS}) == len(CLAIMS)

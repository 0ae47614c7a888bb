"""The command of the campaign, at a tiny size."""

from collections import Counter

import clusters
import forked
import pytest
from faults.campaign import Kind
from faults.soak import BEGIN, END, is_one_sided


@pytest.mark.parametrize(("refused", "wrong"), [(0, True), (1, False), (59, False), (60, True)])
def test_a_fuzzer_must_meet_valid_and_invalid_files(refused, wrong):
    kind = Kind("mutated experiment files", "files", lambda number, rng: Counter())
    assert is_one_sided(kind, Counter(trials=60, refused=refused)) == wrong
    assert not is_one_sided(kind, Counter(trials=20, refused=20))


@pytest.mark.slow
def test_a_small_campaign_writes_its_figures_into_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# It\n\n{BEGIN}\nold\n{END}\nend\n")
    words = f"soak --kills 3 --files 20 --minutes 600 --write {page}".split()
    code = f"import sys\nsys.argv = {words}\nfrom faults import soak\nsys.exit(soak.main())"
    clusters.finish(forked.Script(code))
    text = page.read_text()
    assert text.startswith(f"# It\n\n{BEGIN}\n\n`make soak` on ")
    assert text.endswith(f"{END}\nend\n")
    assert "old" not in text
    assert "| mutated experiment files | 10 |" in text
    assert "| run killed before a change of the file system | 1 | " in text
    assert "asked for: power lost: unflushed files empty; power lost: " in text

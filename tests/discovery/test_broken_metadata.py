"""Metadata that is broken: the one distribution says so, the rest is listed as it is."""

from __future__ import annotations

import pytest
from support.sites import MEMORY, PLUGINS, provider_source

from hermes_core import ProviderLoadError, load_provider
from hermes_core.discovery import find_provider

GROUP = b"[hermes_agent.memory_providers]\n"


@pytest.fixture(autouse=True)
def good(site):
    """A sound neighbour that has to be listed in every case."""
    site.add_provider("good")


def test_an_undecodable_file_breaks_its_own_distribution_alone(found, site):
    site.add("latin", "1.2", entry_points=GROUP + "erinnerung-für = latin\n".encode("latin-1"))
    listed = found()
    assert listed["good"].state == "installed"
    latin = listed["latin"]
    assert (latin.state, latin.distribution, latin.version) == ("broken", "latin", "1.2")
    assert "entry_points.txt" in latin.problem
    assert "UTF-8" in latin.problem


def test_what_can_not_be_read_can_not_be_loaded_and_says_why(home, site):
    site.add("latin", entry_points=GROUP + b"\xff = latin\n")
    with pytest.raises(ProviderLoadError, match="UTF-8") as caught:
        load_provider("latin", home)
    assert (caught.value.plugin, caught.value.distribution) == ("latin", "latin")
    assert caught.value.step == "find"


@pytest.mark.parametrize(
    "line", ["no equals sign", "= value.without:name", "name =", "[unclosed", "name"]
)
def test_a_line_that_is_no_entry_point_is_quoted_and_the_others_count(found, site, line):
    text = f"acme = acme_memory:register\n{line}\nbeta = beta_memory:register\n".encode()
    site.add(
        "acme-memory",
        entry_points=GROUP + text,
        files={"acme_memory.py": provider_source("acme")},
    )
    acme = found()["acme"]
    assert acme.state == "broken"
    assert repr(line) in acme.problem
    assert load_provider(acme).name == "acme"
    assert found()["beta"].entry_point == "beta_memory:register"
    assert found()["good"].state == "installed"


def test_an_entry_before_the_first_group_is_no_entry_point(found, site):
    site.add("early", entry_points=b"early = a:b\n" + GROUP + b"late = a:b\n")
    assert "early" in found()["late"].problem
    assert "early" not in found()


def test_comments_blank_lines_and_windows_line_ends_are_fine(found, site):
    text = b"\r\n# comment\r\n" + GROUP.replace(b"\n", b"\r\n") + b"  acme=acme_memory:x\r\n\r\n"
    site.add("acme-memory", entry_points=text)
    assert found()["acme"].entry_point == "acme_memory:x"
    assert found()["acme"].state == "installed"


def test_a_byte_order_mark_does_not_hide_the_distribution(found, site):
    site.add("marked", entry_points=b"\xef\xbb\xbf" + GROUP + b"acme = marked:register\n")
    (info,) = [each for each in found().values() if each.distribution == "marked"]
    assert info.state in ("installed", "broken")
    assert info.state == "installed" or info.problem


def test_a_distribution_without_metadata_is_told_by_its_folder(found, site):
    info = site.add_provider("acme", "acme-memory", "3.1")
    (info / "METADATA").unlink()
    acme = found()["acme"]
    assert (acme.distribution, acme.version) == ("acme_memory", "3.1")
    assert acme.state == "broken"
    assert "METADATA" in acme.problem
    assert found()["good"].state == "installed"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"\n\nName: x\n", b"no header at all"])
def test_metadata_without_headers_does_not_end_the_listing(found, site, content):
    info = site.add_provider("acme", "acme-memory", "3.1")
    (info / "METADATA").write_bytes(content)
    assert found()["acme"].version == "3.1"
    assert found()["good"].state == "installed"


def test_the_headers_count_and_not_what_the_description_says(found, site):
    info = site.add_provider("acme", "acme-memory", "3.1")
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\r\nName: acme-memory\r\nVersion: 3.1\r\nName: second\r\n\r\n"
        "Name: fake\r\nVersion: 9\r\nSummary: Fake\r\n",
        "utf-8",
    )
    acme = found()["acme"]
    assert (acme.distribution, acme.version, acme.description) == ("acme-memory", "3.1", "")


def test_metadata_that_is_a_folder_does_not_end_the_listing(found, site):
    info = site.add_provider("acme", "acme-memory")
    (info / "METADATA").unlink()
    (info / "METADATA").mkdir()
    assert found()["acme"].state == "broken"


def test_two_records_of_one_distribution_are_told_with_both_versions(found, site):
    site.add_provider("acme", "acme-memory", "1.0")
    site.add_provider("acme", "acme-memory", "2.0")
    acme = found()["acme"]
    assert acme.state == "broken"
    assert "1.0" in acme.problem
    assert "2.0" in acme.problem
    assert "reinstall" in acme.problem


def test_what_pip_could_not_remove_is_not_a_distribution(found, site):
    info = site.add_provider("acme", "acme-memory")
    info.rename(info.with_name("~cme_memory-1.0.dist-info"))
    assert "acme" not in found()


def test_an_egg_info_folder_counts(found, site):
    info = site.add_provider("acme", "acme-memory", "1.5")
    (info / "METADATA").rename(info / "PKG-INFO")
    (info / "RECORD").unlink()
    info.rename(info.with_name("acme_memory.egg-info"))
    acme = found()["acme"]
    assert (acme.state, acme.distribution, acme.version) == ("installed", "acme-memory", "1.5")
    assert load_provider(acme).name == "acme"


def test_an_egg_info_file_and_an_empty_dist_info_are_passed_over(found, site):
    (site.folder / "old-1.0-py3.11.egg-info").write_text("Name: old\nVersion: 1.0\n", "utf-8")
    (site.folder / "empty-1.0.dist-info").mkdir()
    (site.folder / "file-1.0.dist-info").write_text("", "utf-8")
    (site.folder / ".dist-info").mkdir()
    assert set(found(everything=True)) == {"good"}


def test_a_missing_record_is_no_reason_to_be_broken(found, site):
    info = site.add_provider("acme", "acme-memory")
    (info / "RECORD").unlink()
    assert found()["acme"].state == "installed"


@pytest.mark.parametrize(
    "record",
    [b"\xff\xfe,,\n", b"a,b,c,d,e\n", b'"quo""ted.py",,\n', b"\n\n\n", b"../../bin/x,,\n/etc,,\n"],
)
def test_an_odd_record_does_not_end_the_listing(found, site, record):
    info = site.add(
        "acme-memory",
        groups={PLUGINS: {"acme": "acme_memory"}},
        files={"acme_memory.py": provider_source("acme")},
    )
    (info / "RECORD").write_bytes(record)
    assert set(found(everything=True)) == {"good", "acme"}


def test_a_problem_of_a_distribution_that_is_not_ours_to_judge_is_not_listed(found, site):
    site.add("foreign", entry_points=b"[console_scripts]\n\xff\xff\nbroken\n")
    assert set(found(everything=True)) == {"good"}


@pytest.mark.parametrize("name", [b"acme_memory/\0.py", b"a\0b/plugin.yaml,,\na\0b/__init__.py"])
def test_a_nul_in_record_does_not_end_the_listing(found, site, name):
    info = site.add("acme-memory", groups={PLUGINS: {"acme": "acme_memory"}})
    (info / "RECORD").write_bytes(name + b",,\n")
    assert found(everything=True)["good"].state == "installed"


@pytest.mark.parametrize("value", ["not a module!", ":register", "acme-memory:register", "a b:c"])
def test_a_value_that_names_no_object_is_broken(found, site, value):
    site.add("acme-memory", groups={MEMORY: {"acme": value}})
    assert found()["acme"].state == "broken"
    assert repr(value) in found()["acme"].problem


def test_a_header_may_be_spelt_in_lower_case(found, site):
    info = site.add_provider("acme", "acme-memory")
    (info / "METADATA").write_text("name: Acme-Memory\nversion: 7\nsummary: Small\n\n", "utf-8")
    assert (found()["acme"].distribution, found()["acme"].version) == ("Acme-Memory", "7")


def test_a_broken_provider_is_found_with_its_problem(home, site):
    from hermes_core import discover

    site.add("latin", entry_points=GROUP + b"\xff = latin\n")
    with pytest.raises(ProviderLoadError, match=r"entry_points\.txt is not UTF-8"):
        find_provider("latin", discover(home))

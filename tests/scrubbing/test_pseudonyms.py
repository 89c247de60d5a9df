"""Pseudonyms: consistent, in the order of the names, and of whole words only."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_pp.scrubbing.pseudonyms import Identities, choose_pseudonyms

UUIDS = ("93023106-c21f-5b7d-a71e-7f206706c2cd", "4efa2c7a-17ed-5e5d-9128-bb613fc4c4c7")
NAMES = Identities(
    hosts=frozenset({"node2.cluster.org", "node10", "n1"}),
    machine_ids=frozenset({"a1b2c3d4"}),
    uuids=frozenset(UUIDS),
    users=frozenset({"alice", "bo"}),
    secrets=frozenset({"hf_0123456789"}),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node10", "host3"),
        ("NODE10", "host3"),
        ("node2.cluster.org", "host2"),
        ("node2", "host2"),
        ("send to node10 (node2)", "send to host3 (host2)"),
        ("node100 mynode10 node10x", "node100 mynode10 node10x"),
        ("n1", "host1"),
        ("layer n1", "layer n1"),  # a word
        ("a1b2c3d4", "machine1"),
        ("GPU-4efa2c7a-17ed-5e5d-9128-bb613fc4c4c7", "GPU-00000001-0000-0000-0000-000000000000"),
        ("0,GPU-93023106", "0,GPU-00000002"),
        ("GPU-ffffffff", "GPU-ffffffff"),
        ("xhf_0123456789y", "xremovedy"),
        ("home of alice", "home of user1"),
        ("bo", "user2"),
        ("at /home/alice/run/train.py:7 in f", "at /p1/p2/p3/p4.py:7 in f"),
        ("/home/alice/run/train.py", "/p1/p2/p3/p4.py"),
        (r"C:\Users\alice\x.py", r"C:\p5\p2\p6.py"),
        ("aten::add, seq = 3/4 and/or", "aten::add, seq = 3/4 and/or"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    pseudonyms = choose_pseudonyms(NAMES, hosts=True, users=True, paths=True)
    for path in ("/home/alice/run/train.py", r"C:\Users\alice\x.py"):
        pseudonyms.replace(path)
    assert pseudonyms.replace(text) == expected


def test_nothing_but_secrets_is_replaced_unasked() -> None:
    pseudonyms = choose_pseudonyms(NAMES, hosts=False, users=False, paths=False)
    text = f"node10 alice /home/alice/x.py {UUIDS[0]} "
    assert pseudonyms.replace(text + "hf_0123456789") == text + "removed"


WORDS = st.text(string.ascii_lowercase + string.digits, min_size=4, max_size=9)


@given(
    hosts=st.sets(WORDS, min_size=1, max_size=6), text=st.lists(WORDS | st.sampled_from("./-: "), max_size=12)
)
def test_no_host_is_left_and_hosts_stay_distinct(hosts: set[str], text: list[str]) -> None:
    pseudonyms = choose_pseudonyms(Identities(hosts=frozenset(hosts)), hosts=True, users=False, paths=False)
    replaced = [pseudonyms.replace(host) for host in sorted(hosts)]
    assert len({*replaced}) == len(hosts)
    joined = " ".join([*text, *sorted(hosts)])
    words = pseudonyms.replace(joined).replace("/", " ").replace(".", " ").replace("-", " ").split()
    assert hosts & {*words} <= {*replaced}

"""What scenarios put around a measurement: a neighbour that is there and goes, a quota that is set and removed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from flashperf.scenarios import neighbour
from flashperf.scenarios.neighbour import Neighbour
from flashperf.scenarios.pinning import PinningSubject
from flashperf.scenarios.quota import Quota, QuotaError

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are bound and watched as Linux does it")


@LINUX
def test_a_neighbour_computes_on_its_core_and_is_gone_afterwards() -> None:
    core = min(os.sched_getaffinity(0))
    with Neighbour(core) as busy:
        assert busy._process is not None
        process = psutil.Process(busy._process.pid)
        assert process.cpu_affinity() == [core]
        assert process.status() in (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING)
    assert not psutil.pid_exists(process.pid)


def test_no_permission_to_bind_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refused, raising=False)
    assert neighbour.can_bind() == "no permission to bind to cores: Operation not permitted"
    monkeypatch.delattr(os, "sched_setaffinity")
    assert "can't be bound" in neighbour.can_bind()


def fake_root(folder: Path, version: int) -> Path:
    """A root with this process in the control group /app of one version."""
    base = folder / "sys/fs/cgroup" / ("" if version == 2 else "cpu")
    group = base / "app"
    group.mkdir(parents=True)
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text("0::/app\n" if version == 2 else "3:cpu,cpuacct:/app\n")
    (group / ("cpu.max" if version == 2 else "cpu.cfs_quota_us")).write_text(
        "max 100000\n" if version == 2 else "-1\n"
    )
    return group


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_is_set_for_the_processes_counted_and_removed(tmp_path: Path, version: int) -> None:
    group = fake_root(tmp_path, version)
    with Quota(0.5, [11, 12], tmp_path) as quota:
        own = quota.folder
        assert own is not None
        assert own.parent == group
        if version == 2:
            assert (own / "cpu.max").read_text() == "50000 100000"
        else:
            assert (own / "cpu.cfs_quota_us").read_text() == "50000"
        assert (own / "cgroup.procs").read_text() == "12"
        (own / "cpu.stat").write_text("nr_periods 20\nnr_throttled 7\nthrottled_usec 9\n")
        assert quota.throttled() == (7, 20)
        for file in own.iterdir():
            file.unlink()  # as the kernel's files go with the group
    assert not own.exists()
    assert (group / "cgroup.procs").read_text() == "12"


def test_a_machine_without_control_groups_or_permission_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(QuotaError, match="no control group"), Quota(0.5, [], tmp_path / "nothing"):
        pass
    fake_root(tmp_path, 2)

    def refused(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(QuotaError, match="Permission denied"), Quota(0.5, [], tmp_path):
        pass


def test_every_policy_is_checked_and_timed_against_the_queue() -> None:
    subject = PinningSubject(seed=1)
    for variant in ("static_partition", "work_queue"):
        assert subject.prepare(variant, 2, 2) < 1e-5
        assert sorted(subject.block(variant, 2, 2, seed=3)["order"]) == list("AAAABBBB")

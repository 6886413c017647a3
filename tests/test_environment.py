"""Environment, disturbance and energy, read from small proc and sys trees written by the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flashperf import environment
from flashperf.disturbance import Disturbance, SystemProbe, cgroup_files
from flashperf.energy import EnergyCounter

CPUINFO = """processor : 0
model name\t: Test CPU   @ 2.00GHz
cpu MHz\t\t: 2000.000
flags\t\t: fpu avx2 fma f16c avx512f
processor : 1
cpu MHz\t\t: 3000.000
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """Create the files under root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_capture_reads_the_machine(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/cpuinfo": CPUINFO,
            "proc/loadavg": "0.50 0.40 0.30 1/100 1234\n",
            "proc/pressure/cpu": "some avg10=1.25 avg60=0.00 avg300=0.00 total=1\n",
            "proc/self/cgroup": "0::/box\n",
            "sys/fs/cgroup/box/cpu.max": "150000 100000\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun\n",
        },
    )
    found = environment.capture(threads=2, root=tmp_path, checkout=tmp_path)
    assert found.device == "Test CPU @ 2.00GHz"
    assert found.isa[:4] == ("avx2", "fma", "f16c", "avx512f")
    assert found.isa[-1].startswith("kernels:")
    assert found.clock_mhz == 2500
    assert (found.load_1min, found.pressure_some_avg10) == (0.5, 1.25)
    assert found.quota_cores == 1.5
    assert (found.threads, found.driver) == (2, "580.65.06")
    assert (found.commit, found.dirty, found.busy) == ("", False, False)
    assert found.versions["numpy"]
    assert 0 < found.timer_resolution_s < 1e-3


def test_capture_survives_a_machine_that_says_nothing(tmp_path: Path) -> None:
    found = environment.capture(root=tmp_path / "nowhere", checkout=tmp_path / "nowhere")
    assert found.device
    assert (found.quota_cores, found.clock_mhz, found.load_1min, found.pressure_some_avg10) == (None,) * 4
    assert (found.driver, found.commit, found.busy) == ("", "", False)


def test_capture_names_the_compiler_that_built_the_kernels() -> None:
    assert environment.compiler().startswith(("GCC: (", "clang version", "g++", "c++"))


@pytest.mark.parametrize(
    ("load", "pressure", "cores", "part"),
    [
        (None, None, 2, ""),
        (1.0, 0.0, 2, ""),
        (1.4, 0.0, 2, ""),
        (1.6, 0.0, 2, "load 1.60 on 2 cores"),
        (10.0, 0.0, 64, ""),
        (0.0, 5.1, 2, "tasks waited for a core in 5 % of the last 10 s"),
    ],
)
def test_busy_says_why(load: float | None, pressure: float | None, cores: int, part: str) -> None:
    assert environment.busy_reason(load, pressure, cores) == part


def test_quota_of_both_cgroup_versions_takes_the_tightest(tmp_path: Path) -> None:
    v2 = write(
        tmp_path / "v2",
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/outer/inner/cpu.max": "max 100000\n",
        },
    )
    assert environment.quota_cores(v2) == 2.0
    write(v2, {"sys/fs/cgroup/outer/inner/cpu.max": "300000 100000\n"})
    assert environment.quota_cores(v2) == 2.0
    v1 = write(
        tmp_path / "v1",
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert environment.quota_cores(v1) == 0.5  # the path of the host is not visible inside the container
    free = write(tmp_path / "free", {"sys/fs/cgroup/cpu.cfs_quota_us": "-1\n"})
    assert environment.quota_cores(free) is None


def test_clock_prefers_cpufreq(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/cpuinfo": CPUINFO,
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1000000\n",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "1500000\n",
        },
    )
    assert environment.clock_mhz(tmp_path) == 1250


def test_last_level_cache(tmp_path: Path) -> None:
    cache = "sys/devices/system/cpu/cpu0/cache"
    write(tmp_path, {f"{cache}/index0/size": "48K\n", f"{cache}/index3/size": "32M\n"})
    assert environment.last_level_cache_bytes(tmp_path) == 32 << 20
    assert environment.last_level_cache_bytes(tmp_path / "nowhere") == 32 << 20


def test_git_state_of_a_checkout(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    assert environment.git_state(tmp_path) == ("", False)
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "first")
    commit, dirty = environment.git_state(tmp_path)
    assert len(commit) == 40
    assert not dirty
    (tmp_path / "file").write_text("two")
    assert environment.git_state(tmp_path) == (commit, True)


def test_probe_reads_steal_and_throttling(tmp_path: Path) -> None:
    files = {
        "proc/stat": "cpu  100 0 50 1000 5 0 1 7 0 0\ncpu0 50 0 25 500 2 0 1 3 0 0\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 2\nthrottled_usec 4\n",
    }
    probe = SystemProbe(write(tmp_path, files))
    before = probe.read()
    assert (before.steal_ticks, before.throttled) == (7, 2)
    (tmp_path / "proc/stat").write_text("cpu  100 0 50 1000 5 0 1 9 0 0\n")
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("nr_throttled 3\n")
    grown = probe.read() - before
    assert (grown.steal_ticks, grown.throttled) == (2, 1)
    assert "20 ms stolen by the hypervisor" in grown.reason
    assert "throttled by the CPU quota in 1 periods" in grown.reason
    probe.close()


def test_probe_without_files_sees_no_disturbance(tmp_path: Path) -> None:
    reading = SystemProbe(tmp_path / "nowhere").read()
    assert (reading.steal_ticks, reading.throttled) == (0, 0)


def test_disturbance_is_false_when_nothing_grew() -> None:
    assert not Disturbance(5, 5, 5) - Disturbance(5, 5, 5)
    assert (Disturbance(5, 5, 5) - Disturbance(5, 5, 5)).reason == ""
    for grown in (Disturbance(involuntary=1), Disturbance(steal_ticks=1), Disturbance(throttled=1)):
        assert grown
        assert grown.reason
    assert Disturbance(involuntary=2).reason == "2 involuntary context switches"


def test_cgroup_files_are_listed_innermost_first(tmp_path: Path) -> None:
    names = ["a/b", "a", ""]
    write(tmp_path, {f"sys/fs/cgroup/{name}/cpu.stat": "" for name in names})
    write(tmp_path, {"proc/self/cgroup": "0::/a/b\n"})
    base = tmp_path / "sys/fs/cgroup"
    assert cgroup_files(tmp_path, "cpu.stat") == [
        base / "a/b/cpu.stat",
        base / "a/cpu.stat",
        base / "cpu.stat",
    ]


def test_energy_sums_packages_and_survives_a_wrap(tmp_path: Path) -> None:
    zone = "sys/class/powercap/intel-rapl:{}"
    files = {}
    for n, used in ((0, 5_000_000), (1, 999_000)):
        files[zone.format(n) + "/energy_uj"] = str(used)
        files[zone.format(n) + "/max_energy_range_uj"] = "1000000"
    files[zone.format("0:0") + "/energy_uj"] = "7"  # the cores, a part of package 0
    counter = EnergyCounter(write(tmp_path, files))
    assert counter.reason == ""
    before = counter.read_uj()
    write(tmp_path, {zone.format(0) + "/energy_uj": "7000000", zone.format(1) + "/energy_uj": "1000"})
    write(tmp_path, {zone.format("0:0") + "/energy_uj": "500007"})
    assert counter.joules(before, counter.read_uj()) == pytest.approx(2.0 + 0.002)


def test_energy_says_why_not(tmp_path: Path) -> None:
    assert "no energy counters" in EnergyCounter(tmp_path).reason
    broken = write(tmp_path, {"sys/class/powercap/intel-rapl:0/energy_uj": "not a number"})
    assert EnergyCounter(broken).reason.startswith("the energy counters can't be read")


def test_the_gpu_is_named_where_its_driver_says_so(tmp_path: Path) -> None:
    assert environment.gpu(tmp_path) == {}
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   24\n")
    assert environment.gpu(tmp_path) == {"gpu": "NVIDIA H200"}
    assert environment.capture(root=tmp_path).versions["gpu"] == "NVIDIA H200"

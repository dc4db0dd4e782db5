# SPDX-License-Identifier: MIT
"""Bare root folders of Debian and Ubuntu, in which packages are built, installed and removed.

Needs root, mmdebstrap and the distributions' mirrors. Environment:
  CONV_ROOTS          where roots are kept as archives, so that only the first run fetches them (default:
                      .local/roots in the checkout)
  CONV_UBUNTU_MIRROR  another mirror
  CONV_CUDA_TOOLKIT   a CUDA toolkit that needs no package: builds with CUDA, for the GPUs that CONV_CUDA_FOR names
                      (default here: check, which compiles in a fraction of the time)
  CONV_PACKAGES       a folder with a folder of packages per system (`debian12`, `ubuntu24.04`), which are tested
                      instead of new ones; systems that it lacks are skipped
  CONV_CCACHE         a folder for ccache, which then is installed in the roots that build: a second run, or one with
                      CUDA after one without, compiles only what changed
"""
import os
import shlex
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOTS = os.environ.get("CONV_ROOTS", os.path.join(ROOT, ".local", "roots"))
TOOLKIT = os.environ.get("CONV_CUDA_TOOLKIT")
GPUS = os.environ.get("CONV_CUDA_FOR", "check")
CCACHE = os.environ.get("CONV_CCACHE")
UBUNTU = os.environ.get("CONV_UBUNTU_MIRROR", "archive.ubuntu.com/ubuntu")
# Debian 12 has no package with Ubuntu's keys: the mirror is trusted because of its certificate, until the root
# has the keys.
SYSTEMS = {"debian12": ("bookworm", "main", []),
           "ubuntu24.04": ("noble", "main,universe", [f"deb [trusted=yes] https://{UBUNTU} noble main universe"])}


CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # this machine's certificates, which may include a proxy's


class System:
    """A root folder, in which scripts run as root."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.mounts, self.environment = "", {}

    def run(self, script, timeout=1500, toolkit=None):
        """The script's output; it must succeed. A toolkit is visible as /usr/local/cuda, and cannot be written to."""
        enter = self.mounts + 'exec chroot "$0" bash -euo pipefail -c "$1"'
        if toolkit:
            os.makedirs(self.path("/usr/local/cuda"), exist_ok=True)
            enter = f'mount --bind -o ro "$2" "$0/usr/local/cuda" && {enter}'
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.folder}/proc",
                   "sh", "-c", enter, self.folder, script, os.path.realpath(toolkit) if toolkit else ""]
        environment = {key: value for key, value in os.environ.items() if key.lower().endswith(("proxy", "index_url", "_cert"))}
        environment |= {"PIP_CERT": "/host.crt", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                        "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        environment |= self.environment
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
        assert result.returncode == 0, f"{self.name}: {script}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
        return result.stdout

    def keep_objects(self):
        """With CONV_CCACHE: compiled objects are kept from run to run. Releases are built in a folder of /tmp."""
        if not CCACHE:
            return
        kept = os.path.join(os.path.realpath(CCACHE), self.name)
        os.makedirs(kept, exist_ok=True)
        os.makedirs(self.path("/ccache"))
        self.run("apt-get update -q && apt-get install -q -y --no-install-recommends ccache")
        self.mounts = f'mount --bind {shlex.quote(kept)} "$0/ccache" && '
        self.environment = {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX", "CUDA")}
        self.environment |= {"CCACHE_DIR": "/ccache", "CCACHE_BASEDIR": "/tmp", "CCACHE_NOHASHDIR": "1",
                             "CCACHE_SLOPPINESS": "include_file_ctime,include_file_mtime,time_macros"}

    def path(self, name):
        return self.folder + name

    def files(self):
        """The files outside package databases, caches and temporary folders."""
        found = set()
        skipped = {self.path(name) for name in ("/proc", "/sys", "/dev", "/tmp", "/run", "/var", "/root", "/packages")}
        for folder, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if os.path.join(folder, name) not in skipped]
            found |= {os.path.join(folder, name)[len(self.folder):] for name in names}
        return found


def archive(name):
    """The archive of a bare system, made if it is not there."""
    suite, components, sources = SYSTEMS[name]
    path = os.path.join(ROOTS, name + ".tar")
    if not os.path.exists(path):
        os.makedirs(ROOTS, exist_ok=True)
        subprocess.run(["mmdebstrap", "--quiet", "--variant=apt", f"--components={components}", suite, path + ".new.tar",
                        *sources], check=True, timeout=900)
        os.rename(path + ".new.tar", path)
    return path


@pytest.fixture(scope="session", params=SYSTEMS)
def system_name(request):
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.fail("tests of packages need root and mmdebstrap")
    return request.param


def unpack(name, folder):
    os.makedirs(folder)
    subprocess.run(["tar", "-C", folder, "-xf", archive(name)], check=True)
    for source, target in (("/etc/pip.conf", "etc/pip.conf"), ("/etc/resolv.conf", "etc/resolv.conf"), (CERTIFICATES, "host.crt")):
        if os.path.exists(source):
            shutil.copy(source, os.path.join(folder, target))
    # Whether an expired index is an error depends on the mirror, and with it on this machine.
    settings = {"etc/dpkg/dpkg.cfg.d/fast": "force-unsafe-io\n",
                "etc/apt/apt.conf.d/mirror": subprocess.check_output(["apt-config", "dump", "Acquire::Check-Valid-Until"], text=True)}
    if name.startswith("ubuntu"):
        settings["etc/apt/sources.list"] = f"deb http://{UBUNTU} noble main universe\n"
        shutil.rmtree(os.path.join(folder, "etc/apt/sources.list.d"), ignore_errors=True)
    for path, text in settings.items():
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(text)
    return System(name, folder)


@pytest.fixture
def bare(system_name, tmp_path, release):
    """A fresh system with the files of the release in /packages."""
    system = unpack(system_name, str(tmp_path / "root"))
    shutil.copytree(release, system.path("/packages"))
    system.run("apt-get update -q")
    yield system
    shutil.rmtree(system.folder)


def clone(system):
    """Puts this checkout's last commit into /conv."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, system.path("/conv")], check=True)


def build(name, kinds, folder):
    """Runs tools/release in a fresh root and moves the files to `folder`. The next one does not need its temporary clone."""
    system = unpack(name, folder + ".root")
    system.keep_objects()
    clone(system)
    options = "" if TOOLKIT else "--cpu"
    system.run("apt-get update -q && apt-get install -q -y --no-install-recommends git ca-certificates && cd /conv && "
               f"CONV_CUDA_FOR={GPUS} tools/release {options} --only {kinds} /dist && ! grep -l /tmp/ build-libraries/*/toolchain.cmake",
               timeout=3 * 3600, toolkit=TOOLKIT)
    shutil.move(system.path("/dist"), folder)
    shutil.rmtree(system.folder)
    return folder


@pytest.fixture(scope="session")
def release(system_name, tmp_path_factory):
    """The folder of a release, as made on that system; the sources and the static program come from Debian."""
    given = os.environ.get("CONV_PACKAGES")
    if given:
        folder = os.path.join(given, system_name)
        if not os.path.isdir(folder):
            pytest.skip(f"no packages for {system_name} in CONV_PACKAGES")
        return folder
    if not BUILT:
        BUILT["debian12"] = build("debian12", "source,static,deb,wheel", str(tmp_path_factory.mktemp("debian12") / "dist"))
    if system_name not in BUILT:
        folder = BUILT[system_name] = build(system_name, "deb,wheel", str(tmp_path_factory.mktemp(system_name) / "dist"))
        for name in os.listdir(BUILT["debian12"]):
            if name.endswith(".tar.gz"):
                shutil.copy(os.path.join(BUILT["debian12"], name), folder)
    return BUILT[system_name]


BUILT = {}  # folders by system

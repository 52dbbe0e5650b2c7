#!/bin/sh
# Create .venv with the packages pinned in requirements.lock, and install a headless Chromium and bubblewrap if needed.
# Called by make; a second run installs only missing parts.
#
#   PYTHON                  the Python to build on (3.11 or newer); python3 unless set
#   FLYWHEEL_TORCH_INDEX    a package index to take torch from, for example one with CPU or CUDA builds
#   FLYWHEEL_BROWSER        a headless Chromium that is already installed
set -eu
cd "$(dirname "$0")/.."
PLAYWRIGHT=1.65.2
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root true || return 1
    say "apt-get install $*"
    as_root apt-get update -qq >/dev/null 2>&1 || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for candidate in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then printf '%s\n' "$candidate"; return; fi
    done
    return 1
}

make_venv() {
    if [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1; then return; fi
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        apt_install "python$version-venv" || apt_install python3-venv ||
            die "This Python has no venv module. Install it: apt-get install python$version-venv"
    fi
    say "creating .venv with Python $version"
    rm -rf .venv
    "$python" -m venv .venv
}

pip_install() { .venv/bin/python -m pip install -qq "$@"; }

install_packages() {
    torch=$(grep '^torch==' requirements.lock)
    if ! .venv/bin/python -m pip freeze | grep "^$torch" >/dev/null; then  # -q would break the pipe
        say "installing $torch"
        if [ -n "${FLYWHEEL_TORCH_INDEX:-}" ]; then
            pip_install --index-url "$FLYWHEEL_TORCH_INDEX" "$torch" || die "FLYWHEEL_TORCH_INDEX has no $torch. Set it to an index that has this version."
        else
            pip_install -c requirements.lock "$torch" || die "torch could not be installed. Check the network."
        fi
    fi
    say "installing $(wc -l <requirements.lock | tr -d ' ') pinned packages (minutes the first time, seconds from a cache)"
    pip_install -r requirements.lock || die "Some pinned packages could not be installed. See the errors above."
    pip_install --no-deps -e . || die "The project itself could not be installed. See the errors above."
    .venv/bin/python -m pip check >/dev/null || .venv/bin/python -m pip check
}

# Print the browser that the project would use, if one runs.
browser() {
    .venv/bin/python -c 'from environments.chromium.browser import browser_version, find_browser
path = find_browser(); print(path, "|", browser_version(path))' 2>/dev/null
}

playwright_browser() {
    tools=$(mktemp -d)
    say "downloading Chromium's headless shell with Playwright"
    if pip_install --target "$tools" "playwright==$PLAYWRIGHT"; then
        with_tools="env PYTHONPATH=$tools PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT=20000 .venv/bin/python -m playwright"
        $with_tools install --only-shell chromium >/dev/null 2>&1 || true
        browser >/dev/null || as_root $with_tools install-deps chromium >/dev/null 2>&1 || true
    fi
    rm -rf "$tools"
    browser >/dev/null
}

find_chromium() {
    browser >/dev/null || playwright_browser || apt_install chromium-headless-shell || true
    found=$(browser) || die "No headless Chromium was found, and the download failed. Install one:" \
        "apt-get install chromium-headless-shell (Debian), or name one in FLYWHEEL_BROWSER."
    say "browser: $found"
}

find_bubblewrap() {
    command -v bwrap >/dev/null 2>&1 || apt_install bubblewrap ||
        say "bubblewrap is missing: tasks with a shell are left out (apt-get install bubblewrap)"
}

python=$(find_python) || { apt_install python3 python3-venv && python=$(find_python); } ||
    die "Python 3.11 or newer is needed. Set its path: make PYTHON=/path/to/python3.12"
make_venv
install_packages
find_chromium
find_bubblewrap
touch .venv/ready
say "ready"

# Sourced by ./run and ./test: sets `root` and makes sure that $root/.venv holds exactly what requirements-dev.txt pins,
# and the package itself, editable. Does nothing when nothing changed since the last time.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"

fail() {
    echo "error: $*" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in python3.11 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    fail "Turnlane needs Python 3.11 or newer, and none was found as python3.11, python3 or python"
}

# The path is part of it, because a virtual environment does not survive being moved.
wanted_state() {
    echo "$root"
    cat "$root/requirements-dev.txt" "$root/pyproject.toml"
}

install_everything() {
    local python pip
    python="$(find_python)"
    pip=("$venv/bin/python" -m pip -qq --disable-pip-version-check install)
    echo "Setting up .venv with $("$python" --version); this happens once." >&2
    "$python" -m venv --clear "$venv" ||
        fail "could not create $venv; on Debian and Ubuntu the package python3.11-venv (or python3-venv) is needed"
    "${pip[@]}" --require-hashes -r "$root/requirements-dev.txt" ||
        fail "could not install requirements-dev.txt; see the lines above, then run the same command again"
    "${pip[@]}" --no-deps --no-build-isolation -e "$root" ||
        fail "could not install the package itself; see the lines above"
}

# The stamp is written last: a set-up that was interrupted starts over.
ensure_environment() {
    local stamp="$venv/.stamp"
    if [[ ! -f "$stamp" || "$(wanted_state)" != "$(cat "$stamp")" ]]; then
        install_everything
        wanted_state >"$stamp"
    fi
}

# Tests open pages in a real browser: Debian's, where we may install it. Without one they say that they are skipped.
ensure_browser() {
    local candidate
    for candidate in chromium chromium-browser google-chrome chrome; do
        if command -v "$candidate" >/dev/null; then
            return
        fi
    done
    if [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null; then
        echo "Installing Chromium for the tests that open pages; this happens once." >&2
        { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
            chromium fonts-dejavu-core; } >/dev/null ||
            echo "Chromium could not be installed; the tests that need it are skipped." >&2
    else
        echo "There is no Chromium, and only root may install it; the tests that need it are skipped." >&2
    fi
}

# Prepares what an MCP server needs. Runs in the box, before the server does. What it writes is the log of the preparation; that it ends
# well is all that is believed of it.
#
# prepare SOURCE PLACE COPY PYTHON NODE RUNNER TOOLS SECONDS
#   SOURCE   where the project is
#   PLACE    a directory for this server and these manifests, that is kept
#   COPY     copy, if the project must be copied to PLACE/source because it cannot be written to; else in-place
#   PYTHON   none, requirements, package, or requirements+package: what is installed into PLACE/venv
#   NODE     none, ci or install: how node_modules are made
#   RUNNER   none, or the program that runs the server
#   TOOLS    a directory for programs that the image lacks; TOOLS/bin is on the path, at its end
#   SECONDS  how long another start may take that prepares the same
set -eu
source=$1 place=$2 copy=$3 python=$4 node=$5 runner=$6 tools=$7 seconds=$8
root=$source
venv=$place/venv
trap 'exit 143' HUP INT TERM

main() {
    find_runner
    if [ "$python" = none ] && [ "$node" = none ]; then
        return
    fi
    lock "$place"
    if [ "$copy" = copy ]; then
        refresh_copy
        root=$place/source
    fi
    if [ "$python" != none ]; then
        make_environment
    fi
    if [ "$node" != none ]; then
        make_modules
    fi
    forget_old
}

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "$*"
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Runs a program in the project. It does not inherit the lock: something that it leaves running would keep it.
run() {
    say "+ $*"
    (cd "$root" && exec "$@" 9>&- </dev/null >&2)
}

# Waits until nobody else prepares the same. The system frees the lock of whoever is killed; where there is no flock, age tells.
lock() {
    mkdir -p "$1"
    waited=0
    exec 9>"$1/lock"
    until take_lock "$1"; do
        if [ "$waited" -eq 0 ]; then
            say "waiting for another start that prepares the same"
        fi
        if [ "$waited" -ge "$seconds" ]; then
            fail "another start has been preparing $1 for $seconds seconds; stop it, or try again later"
        fi
        sleep 1
        waited=$((waited + 1))
    done
}

take_lock() {
    if has flock; then
        flock -n 9
        return
    fi
    find "$1/locked" -prune -mmin "+$((seconds / 60 + 1))" -exec rmdir {} \; 2>/dev/null || :
    mkdir "$1/locked" 2>/dev/null || return 1
    held=$1/locked
    trap 'rmdir "$held" 2>/dev/null || :' EXIT
}

# The program that runs the server. Images often have Python without uv, and python3 without python.
find_runner() {
    case $runner in
        none) ;;
        uv | uvx)
            if ! has "$runner"; then
                (lock "$tools"; install_uv)
            fi
            ;;
        python)
            if ! has python; then
                (lock "$tools"; name_python)
            fi
            ;;
        *) has "$runner" || fail "there is no $runner in the box; set box.image to an image that has it" ;;
    esac
}

system_python() {
    command -v python3 || command -v python || fail "there is no Python in the box; set box.image to an image that has it, such as python:3.12-slim"
}

name_python() {
    found=$(system_python)
    mkdir -p "$tools/bin"
    ln -sf "$found" "$tools/bin/python"
}

install_uv() {
    if has "$runner"; then
        return
    fi
    say "there is no $runner in the box; installing uv"
    root=$tools
    found=$(system_python)
    rm -rf "$tools/uv"
    new_environment "$found" "$tools/uv"
    run "$tools/uv/bin/python" -m pip install uv
    mkdir -p "$tools/bin"
    ln -sf "$tools/uv/bin/uv" "$tools/uv/bin/uvx" "$tools/bin/"
}

# Debian has Python without what venv needs to put pip into an environment; then the system's own pip must do.
new_environment() {
    if ! run "$1" -m venv "$2"; then
        rm -rf "$2"
        run "$1" -m venv --system-site-packages --without-pip "$2"
    fi
    run "$2/bin/python" -m pip --version || fail "there is no pip in the box; set box.image to an image that has it, such as python:3.12-slim"
}

# Files that are gone from the project go from the copy too. What was built in the copy stays.
refresh_copy() {
    mkdir -p "$place/source"
    list_files >"$place/files.new"
    if [ -f "$place/files" ]; then
        # What is only in the first list: the second one is there twice.
        sort "$place/files" "$place/files.new" "$place/files.new" | uniq -u | while IFS= read -r gone; do
            rm -f "$place/source/$gone" || :
        done
    fi
    mv "$place/files.new" "$place/files"
    for entry in "$source"/* "$source"/.[!.]* "$source"/..?*; do
        if is_copied "$entry"; then
            copy_entry "$entry" "$place/source"
        fi
    done
}

list_files() (
    cd "$source"
    for entry in ./* ./.[!.]* ./..?*; do
        if is_copied "$entry"; then
            find "$entry" ! -type d
        fi
    done | sort -u
)

# Environments and modules of the host are of no use in a box.
is_copied() {
    if [ ! -e "$1" ] && [ ! -L "$1" ]; then
        return 1
    fi
    case ${1##*/} in
        .git | node_modules | __pycache__ | .mypy_cache | .pytest_cache | .ruff_cache) return 1 ;;
    esac
    [ ! -e "$1/pyvenv.cfg" ]
}

# A file where a directory was, or the other way round, cannot be copied over.
copy_entry() {
    if ! cp -RP "$1" "$2/" 2>/dev/null; then
        rm -rf "${2:?}/${1##*/}"
        cp -RP "$1" "$2/"
    fi
}

# An environment is reused as long as the interpreter is the same; other manifests have another place.
make_environment() {
    found=$(system_python)
    version=$("$found" -c 'import sys; print(sys.implementation.cache_tag, sys.prefix)' </dev/null 9>&-)
    if [ "$(cat "$place/python" 2>/dev/null)" = "$version" ]; then
        say "the environment for these manifests is there"
        return
    fi
    rm -rf "$venv" "$place/python"
    new_environment "$found" "$venv"
    case $python in
        requirements | requirements+package) run "$venv/bin/python" -m pip install -r requirements.txt ;;
    esac
    case $python in
        package | requirements+package) install_package ;;
    esac
    printf '%s\n' "$version" >"$place/python"
}

# Editable, so that a changed source needs no new environment. Old build systems cannot do that.
install_package() {
    run "$venv/bin/python" -m pip install -e . || run "$venv/bin/python" -m pip install .
}

make_modules() {
    has npm || fail "there is no npm in the box; set box.image to an image that has it, such as node:22-slim"
    version=$(node --version </dev/null 9>&-)
    if [ -d "$root/node_modules" ] && [ "$(cat "$place/node" 2>/dev/null)" = "$version" ]; then
        say "node_modules for these manifests are there"
        return
    fi
    rm -f "$place/node"
    run npm "$node"
    printf '%s\n' "$version" >"$place/node"
}

# Of other manifests of this server, only those are kept that were used last: somebody may go back.
forget_old() (
    touch "$place"
    cd "${place%/*}"
    others=0
    ls -1t | while IFS= read -r other; do
        if [ "$other" = "${place##*/}" ]; then
            continue
        fi
        others=$((others + 1))
        if [ "$others" -gt 1 ]; then
            rm -rf "./$other"
        fi
    done
)

main

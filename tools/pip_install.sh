#!/bin/sh
# pip install, quiet when it works; when it does not, its output and the likely reason.
# usage: tools/pip_install.sh PYTHON PIP-ARGUMENTS...
python=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing: $*" | sed 's/-c constraints.txt //; s/--no-build-isolation //'
if "$python" -m pip install -q "$@" >"$log" 2>&1; then
    exit 0
fi
cat "$log" >&2
case "$(cat "$log")" in
    *"No space left"*) echo "flashperf: the disk is full" >&2 ;;
    *"NewConnectionError"* | *"Could not fetch URL"* | *"ConnectTimeout"* | *"Temporary failure in name resolution"*)
        echo "flashperf: the package index can't be reached; is there a network, or a proxy to set?" >&2 ;;
    *"No matching distribution"*)
        echo "flashperf: the index has no fitting package for this Python and platform (see the line above)" >&2 ;;
esac
exit 1

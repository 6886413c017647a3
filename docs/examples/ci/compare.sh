#!/usr/bin/env bash
# The same without any CI product: compare a base revision with what is checked out, keep the verdict as markdown.
#
#     docs/examples/ci/compare.sh origin/main verdict.md
#
# Exit codes are those of `flashperf compare`: 0 fine, 10 slower, 12 missing, 13 not comparable, 14 failed.
set -euo pipefail
base=${1:-origin/main}
verdict=${2:-verdict.md}

code=0
flashperf compare "$base" HEAD --gate 5% --markdown "$verdict" --quiet || code=$?
case $code in
  0) echo "no bench is shown to be slower" ;;
  10) echo "slower: see $verdict" ;;
  *) echo "exit code $code: see $verdict" ;;
esac
exit "$code"

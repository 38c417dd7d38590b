#!/bin/sh
# Renews the locks, for all supported versions of Python on Linux and macOS: `make lock`, or `make lock UPGRADE=--upgrade`.
#   lock.txt         one version of every package of the extras below: constraints for pip and uv (`-c`)
#   lock-hashes.txt  the same with the hashes of the files: uv verifies those of constraints too (the images)
# torch is in the first alone: its build depends on the machine, and each index of builds has files of its own.
# There is no uv.lock: it holds the addresses of one index, and these files are for any mirror.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-uv}
extras="lora data verify reasoning tensorboard gguf megatron sweep games mcp ui agents cluster completion video hdf5 serve
    onnx mujoco metaworld minigrid robotics box2d dev peers docs"
options=""
for extra in $extras; do options="$options --extra $extra"; done
compile() {
    # shellcheck disable=SC2086 # a list of options
    "$uv" pip compile --quiet --universal --python-version 3.11.7 --strip-extras --no-annotate \
        --no-emit-package setuptools --custom-compile-command "make lock" $options "$@" pyproject.toml
}
# What is the same on all supported systems needs no marker; another system then gets the same versions.
everywhere=" ; python_full_version < '3.14' and ((platform_machine == 'arm64' and platform_python_implementation == 'CPython' and sys_platform == 'darwin') or (platform_machine == 'x86_64' and platform_python_implementation == 'CPython' and sys_platform == 'linux'))"
# shellcheck disable=SC2086
compile ${UPGRADE:-} -o requirements/lock.txt
compile -c requirements/lock.txt --generate-hashes --no-emit-package torch -o requirements/lock-hashes.txt
for file in requirements/lock.txt requirements/lock-hashes.txt; do
    EVERYWHERE=$everywhere awk '{ at = index($0, ENVIRON["EVERYWHERE"])
        print at ? substr($0, 1, at - 1) substr($0, at + length(ENVIRON["EVERYWHERE"])) : $0 }' "$file" >"$file.new"
    mv "$file.new" "$file"
done

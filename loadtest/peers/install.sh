#!/usr/bin/env bash
# Installs the peers that `monolith bench` measures beside ours, into .oracles/peers/ (and,
# for Debian packages, into the system): libcuckoo, Redis, PyTorch, TensorFlow
# Recommenders Addons, Triton. Some 5 GB; tests need none of them. Running it again installs only
# what is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/.oracles/peers
mkdir -p "$here"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

packages=()
[ -e /usr/include/libcuckoo/cuckoohash_map.hh ] || packages+=(libcuckoo-dev)
command -v redis-server >/dev/null 2>&1 || packages+=(redis-server)
command -v g++ >/dev/null 2>&1 || packages+=(g++)
command -v python3 >/dev/null 2>&1 || packages+=(python3 python3-venv)
if [ "${#packages[@]}" -gt 0 ]; then
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

g++ -O3 -march=native -std=c++17 -pthread -o "$here/cuckoo" loadtest/peers/cuckoo/cuckoo.cc

# Each in an environment of its own: they pin different versions of numpy. One that holds other
# versions is made anew.
environment() {
  local name=$1
  shift
  [ "$(cat "$here/$name/.complete" 2>/dev/null)" = "$*" ] && return
  rm -rf "${here:?}/$name"
  python3 -m venv "$here/$name"
  "$here/$name/bin/pip" install -q --disable-pip-version-check "$@"
  echo "$*" > "$here/$name/.complete"
}
environment torch 'torch==2.15.0' 'numpy==2.4.6'
environment tfra 'tensorflow-recommenders-addons==0.8.1' 'tensorflow-cpu==2.16.2' 'numpy<2'
# The server of this wheel runs without a GPU. Its Python backend wants the part that is built for the
# interpreter beside it, and that interpreter's library.
environment triton --no-deps 'nvidia-pytriton==0.7.0' 'numpy==1.26.4'
(
  cd "$here"/triton/lib/python3*/site-packages/pytriton/tritonserver
  python=$("$here/triton/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  cp "python_backend_stubs/$python/triton_python_backend_stub" backends/python/
  if ldd backends/python/triton_python_backend_stub | grep -q 'not found'; then
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "libpython$python"
  fi
)
echo "The peers are in $here."

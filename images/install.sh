#!/bin/sh
# Installs Python packages into /opt/rampway while an image is built. uv and all downloads live in
# cache mounts, so neither lands in a layer nor is fetched twice.
set -eu
version=0.13.9
tools=/cache/tools/uv-$version
export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt
export UV_CACHE_DIR=/cache/uv UV_LINK_MODE=copy
if ! "$tools/bin/uv" --version >/dev/null 2>&1; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q --no-cache-dir --disable-pip-version-check "uv==$version"
fi
[ -d /opt/rampway ] || python3 -m venv --without-pip /opt/rampway
"$tools/bin/uv" pip install --python /opt/rampway --compile-bytecode "$@"
rm -f /opt/rampway/.lock # world-writable, and only of use to uv

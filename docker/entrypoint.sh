#!/bin/sh
# numba only uses a cache it may write to; the image is read-only, /tmp is not.
set -eu
if [ ! -d "$NUMBA_CACHE_DIR" ]; then
    cp -r /opt/llmserve/kernels "$NUMBA_CACHE_DIR"
fi
exec "$@"

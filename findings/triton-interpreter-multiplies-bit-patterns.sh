#!/usr/bin/env bash
# Triton's interpreter multiplies the bit patterns of BF16 numbers in `tl.dot`, and reports no error.
#
# Software: Triton 3.9.0 with NumPy 2.3.5, Python 3.11. Triton 3.6.0 behaves in the same way.
#
# TRITON_INTERPRET=1 runs kernels on a CPU, so that they can be tested without a GPU. NumPy has no BF16, so the interpreter
# keeps such numbers as 16-bit integers with the same bits. `tl.dot` passes these integers to the matrix product of NumPy
# (triton/runtime/interpreter.py, `create_dot`, which converts 8-bit numbers only). Below, a kernel multiplies two matrices of
# 16 x 16 ones in three types.
#
# Expected: each element of the product is 16, in every type. A type that the interpreter cannot compute is refused.
# Seen: BF16 gives 16 * 16256 * 16256, because the bits of 1.0 in BF16 are the integer 16256. Sums, products of elements and
# conversions of BF16 are right, so the rest of a kernel looks sound. Output:
#
#   fp32  16
#   fp16  16
#   bf16  4228120576
#
# What helps: convert the operands of `tl.dot` to FP32 when the kernel is interpreted, by a constant of the kernel
# (tests/gpu/kernels/triton_kernels.py, `widen`).
# Exit code 0: the behavior is as described. 1: the behavior has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check triton==3.9.0 numpy==2.3.5
cd "$folder"

cat >product.py <<'PYTHON'
import numpy
import triton
import triton.language as tl


@triton.jit
def product(address, kind: tl.constexpr):
    """Write the product of two matrices of ones to an address."""
    ones = tl.full((16, 16), 1.0, kind)
    at = tl.arange(0, 16)
    out = address.to(tl.pointer_type(tl.float32))
    tl.store(out + at[:, None] * 16 + at[None, :], tl.dot(ones, ones, out_dtype=tl.float32))


for kind in (tl.float32, tl.float16, tl.bfloat16):
    out = numpy.zeros((16, 16), numpy.float32)
    product[(1,)](out.ctypes.data, kind)
    assert (out == out[0, 0]).all()
    print(f"{kind}  {out[0, 0]:.0f}")
PYTHON

TRITON_INTERPRET=1 venv/bin/python product.py >seen
cat seen
diff seen - <<'SEEN'
fp32  16
fp16  16
bf16  4228120576
SEEN
echo "as described"

"""Makes fits reproducible: numpy reads the number of its threads when it is imported, as in `sizing/fit.py`."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

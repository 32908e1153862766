"""The agent as a program that writes its record every three seconds, because a test cannot wait half a minute until the
agent learns from the answer what the operator tells it. Nothing else differs.
"""

from ome_operator.__main__ import main
from ome_operator.agent import loop

if __name__ == "__main__":
    loop.AGAIN_EVERY = loop.PROGRESS_EVERY = 3.0
    main()

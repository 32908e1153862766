"""The agent as a program that writes its NodeModels object every three seconds instead of every half minute. The agent
learns what the operator tells it from the response to such a write, and a test cannot wait that long. Nothing else differs
from the shipped agent.
"""

from ome_operator.__main__ import main
from ome_operator.agent import loop

if __name__ == "__main__":
    loop.AGAIN_EVERY = loop.PROGRESS_EVERY = 3.0
    main()

"""The pure core: `sync` computes a Plan from the existing and the desired objects, without a clock, randomness or network
access.
"""

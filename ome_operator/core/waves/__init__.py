"""Progressive rollout of edits that several services share: services get an edit in waves, and each wave has to be proven
before the next wave begins (decisions 30).
"""

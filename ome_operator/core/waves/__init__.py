"""Progressive rollout of edits that several services share: in waves, each proven before the next (decisions 30)."""

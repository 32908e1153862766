"""Compute the next safe step of a rollout, from the old slice of a service to the new slice. A slice is all objects of one
revision on the cluster. No state is kept between the steps.
"""

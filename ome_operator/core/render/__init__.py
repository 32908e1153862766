"""Render the manifests of all objects of a service: new dicts that hold only the fields that the operator owns, in
canonical form.
"""

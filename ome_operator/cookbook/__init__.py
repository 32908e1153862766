"""Recipes: from hardware, model and strategy to the launch command and the YAML that serves it.

Pure: `library` says what is known, `layout` sizes and refuses, `preset` fills a sandboxed template, `command` and
`manifests` write it down.
"""

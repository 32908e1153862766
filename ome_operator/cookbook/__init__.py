"""Recipes: from hardware, model and strategy to the launch command and the YAML that serves it.

Pure: `library` says what is known, `plan` sizes and refuses, `preset` fills a sandboxed template, `text` writes it down.
"""

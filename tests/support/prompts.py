"""Prompts for engines on CPUs and GPUs. The module imports nothing, because it is copied to machines without our
packages.
"""

LONG = "A much longer prompt, so that more than one page of the cache is used. " * 4
PROMPTS = ("The future of AI is", "Hello", LONG, "7")
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a location",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["unit"],
            "additionalProperties": False,
        },
    },
}

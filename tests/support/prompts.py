"""What engines are asked, on CPUs and on GPUs. Imports nothing, for it travels to machines without our packages."""

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

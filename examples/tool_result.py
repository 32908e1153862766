"""Send the result of a tool call to the model, which uses it to answer the question."""

from client import client, parser

args = parser(__doc__).parse_args()


def get_weather(location: str, unit: str = "celsius") -> str:
    """Return fixed weather. A real program would call a weather service here."""
    return f"The weather in {location} is 22°{unit[0].upper()} and sunny."


call = {"name": "get_weather", "arguments": '{"location": "Beijing", "unit": "celsius"}'}
messages = [
    {"role": "user", "content": "What's the weather in Beijing?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "call_123", "type": "function", "function": call}]},
    {"role": "tool", "tool_call_id": "call_123", "content": get_weather("Beijing", "celsius")},
]
response = client(args).chat.completions.create(
    model=args.model, messages=messages, temperature=0.7, max_tokens=args.max_tokens
)
print(response.choices[0].message.content)

"""Let a model request a tool call. The runtime needs `--tool-call-parser=kimi_k2`. `tool_result.py` sends the result."""

from client import client, parser

words = parser(__doc__)
words.add_argument("question", nargs="?", default="What's the weather in Beijing?")
words.add_argument("--force", action="store_true", help="force the tool call, for models that are too small to choose")
args = words.parse_args()

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city name", "maxLength": 40},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Temperature unit"},
            },
            "required": ["location"],
            "additionalProperties": False,
        },
        "strict": args.force,  # SGLang then generates only tokens that match the schema of the parameters
    },
}
forced = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}} if args.force else {}

response = client(args).chat.completions.create(
    model=args.model,
    messages=[{"role": "user", "content": args.question}],
    tools=[TOOL],
    temperature=0.7,
    max_tokens=args.max_tokens,
    stream=True,
    **forced,
)
calls: dict[int, dict[str, str]] = {}
for chunk in response:
    if not chunk.choices:
        continue
    delta = chunk.choices[0].delta
    print(getattr(delta, "reasoning_content", None) or delta.content or "", end="", flush=True)
    # A call arrives in pieces: first its name, then its arguments, some characters at a time.
    for piece in delta.tool_calls or ():
        call = calls.setdefault(piece.index, {"name": "", "arguments": ""})
        if piece.function:
            call["name"] = piece.function.name or call["name"]
            call["arguments"] += piece.function.arguments or ""
print()
for _, call in sorted(calls.items()):
    print(f"Tool call: {call['name']}\n  Arguments: {call['arguments']}")

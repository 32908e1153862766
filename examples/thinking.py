"""Stream the reasoning and the answer of a model separately. The runtime needs `--reasoning-parser=kimi_k2`."""

from client import client, parser

words = parser(__doc__)
words.add_argument("question", nargs="?", default="Solve this problem step by step: What is 15% of 240?")
args = words.parse_args()

response = client(args).chat.completions.create(
    model=args.model,
    messages=[{"role": "user", "content": args.question}],
    temperature=0.6,
    max_tokens=args.max_tokens,
    stream=True,
)
part = ""
for chunk in response:
    if not chunk.choices:
        continue
    delta = chunk.choices[0].delta
    # reasoning_content is not a field of OpenAI's API, so the attribute exists only if the chunk contains it.
    for name, text in (("Thinking", getattr(delta, "reasoning_content", None)), ("Content", delta.content)):
        if text:
            if part != name:
                print(f"\n=============== {name} =================", flush=True)
                part = name
            print(text, end="", flush=True)
print()

"""Ask a question and print the answer.

kubectl port-forward -n kimi-k2-instruct service/kimi-k2-instruct 8080:80
python examples/chat.py "What is 15% of 240?"
"""

from client import client, parser

words = parser(__doc__)
words.add_argument("question", nargs="?", default="What is 15% of 240?")
args = words.parse_args()

response = client(args).chat.completions.create(
    model=args.model,
    messages=[{"role": "user", "content": args.question}],
    temperature=0.6,
    max_tokens=args.max_tokens,
)
print(response.choices[0].message.content)

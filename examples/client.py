"""The connection of the examples to a service: from arguments, environment variables, or the port-forward of the README."""

import argparse
import os

from openai import OpenAI

URL, MODEL = "http://localhost:8080/v1", "kimi-k2-instruct"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments that all examples have."""
    words = argparse.ArgumentParser(description=description)
    words.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL", URL), help="default: %(default)s")
    words.add_argument("--model", default=os.environ.get("OPENAI_MODEL", MODEL), help="default: %(default)s")
    words.add_argument("--max-tokens", type=int, default=2048, help="default: %(default)s")
    return words


def client(args: argparse.Namespace) -> OpenAI:
    """Return a client of the service. The service requires a key only if its runtime configures one."""
    return OpenAI(base_url=args.base_url, api_key=os.environ.get("OPENAI_API_KEY", "EMPTY"))

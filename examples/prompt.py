"""A prompt that improves by feedback: the loop of training, with words for numbers.

    python examples/prompt.py    less than a second, and no language model

A model answers, an evaluator compares, feedback flows back to the prompt, an optimizer rewrites it. A language model
is any callable that takes messages and returns a text. The three here are plain functions, so that every run is alike;
put yours in their place:

    def model(messages):
        return someService.chat(messages).text
"""

import json
import re

from puregraph.autodiff import Variable, no_grad
from puregraph.compat.text import TGD, ChatCompletion, ExactMatchEvaluator

SENTENCES = [
    "Meet me on 3 March 2024, at the usual place.",
    "The armistice was signed on 11 November 1918.",
    "We land on 20 July 1969, late in the evening.",
]
DATES = ["2024-03-03", "1918-11-11", "1969-07-20"]
MONTHS = "January February March April May June July August September October November December".split()


# The tracers for language models ------------------------------------------------------------------------------------


def model(messages):
    """Finds the date in a sentence, and writes it as the prompt says, as far as it understands the prompt."""
    prompt, sentence = (message["content"].lower() for message in messages)
    day, month, year = re.search(r"(\d+) (\w+) (\d+)", sentence).groups()
    month = month.capitalize()
    if "number" in prompt:
        month = str(MONTHS.index(month) + 1)
    if "two digits" in prompt:
        day, month = day.zfill(2), month.zfill(2)
    parts = [year, month, day] if "year first" in prompt else [day, month, year]
    date = ("-" if "hyphens" in prompt else " ").join(parts)
    return date if "nothing but" in prompt else f"Gladly! The date is {date}."


def critic(messages):
    """Says the first thing that is wrong with what the model wrote."""
    text = messages[-1]["content"]
    outputs = re.findall("<OUTPUT[^>]*>(.*?)</OUTPUT>", text)
    targets = re.findall("<TARGET>(.*?)</TARGET>", text)
    if any("date" in output for output in outputs):
        return "Write nothing but the date."
    if any(re.search("[A-Za-z]", output) for output in outputs):
        return "Write the month as a number."
    if any(output[:4] != target[:4] for output, target in zip(outputs, targets)):
        return "Put the year first, the day last."
    if any(" " in output for output in outputs):
        return "Join the parts with hyphens."
    return "Use two digits for month and day."


def messenger(messages):
    """Hands feedback to the answers on to the prompt that led to them."""
    (feedback,) = re.findall("<FEEDBACK>(.*?)</FEEDBACK>", messages[-1]["content"])
    return json.dumps([feedback])


def editor(messages):
    """Rewrites the prompt: what the feedback asks for becomes its last sentence."""
    text = messages[-1]["content"]
    (prompt,) = re.findall("<TEXT[^>]*>(.*?)</TEXT>", text)
    (feedback,) = re.findall("<FEEDBACK>(.*?)</FEEDBACK>", text)
    return f"<NEW>{prompt} {feedback}</NEW>"


# Training -------------------------------------------------------------------------------------------------------------


def answer(prompt, sentences):
    """What the model makes of a list of sentences."""
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "{sentence}"}]
    return ChatCompletion.apply(model, messages, {"sentence": sentences}, backward_model_client=messenger)


def main():
    prompt = Variable("Find the date in the sentence.", role="the prompt", requires_grad=True)
    optimizer = TGD([prompt], editor)
    print(f"The prompt at first\n  {prompt.data}\n")
    for step in range(1, 10):
        answers = answer(prompt, SENTENCES)
        score, explanation = ExactMatchEvaluator.apply(answers, DATES, backward_model_client=critic)
        optimizer.zero_grad()
        explanation.backward()
        (feedback,) = prompt.grad
        print(f"step {step}  {score.data} of {len(DATES)} right  {answers.data[0]}")
        if not optimizer.step():
            print(f"{'':8}no {feedback.role}: nothing needs to change\n")
            break
        print(f"{'':8}{feedback.role}: {feedback.data}")
    print("The prompt at last")
    for sentence in prompt.data.split(". "):
        print(f"  {sentence.rstrip('.')}.")
    with no_grad():
        print("\nA sentence that it has not seen\n  The bridge opened on 5 May 1932.")
        print(f"  {answer(prompt, ['The bridge opened on 5 May 1932.']).data[0]}")


if __name__ == "__main__":
    main()

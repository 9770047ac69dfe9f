"""Variables of text, and a language model that gives prepared answers."""

from puregraph.autodiff import Variable


def text(data, role="", requires_grad=True):
    return Variable(data, role=role, requires_grad=requires_grad)


def words(grads):
    return [g.data for g in grads]


class Client:
    """A language model that gives prepared answers, and keeps what it was asked; an exception is raised."""

    def __init__(self, *answers):
        self.answers, self.asked, self.options = list(answers), [], []

    def __call__(self, messages, **options):
        self.asked.append(messages)
        self.options.append(options)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def last(self):
        """All that was said in the last question."""
        return "\n".join(message["content"] for message in self.asked[-1])

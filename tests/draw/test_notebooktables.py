"""Notebooks: a trainer, a footprint and a confusion are tables, and names in them are text."""

import numpy as np

from puregraph import SGD, Confusion, CrossEntropy, Footprint, Linear, Sequential, Trainer

X = np.random.default_rng(1).standard_normal((20, 3)).astype(np.float32)


def test_a_trainer_shows_what_it_trains_and_its_epochs():
    trainer = Trainer(Sequential(Linear(3, 3), name="<b>"), CrossEntropy(), SGD(0.5), 8, progress="none")
    assert "12 parameters" in trainer._repr_html_() and "&lt;b&gt;" in trainer._repr_html_()
    assert trainer._repr_html_().count("<table>") == 1
    trainer.train(X, X.argmax(1), epochs=2)
    assert "<td>2, 6</td>" in trainer._repr_html_() and "<th>loss</th>" in trainer._repr_html_()


def test_a_footprint_shows_the_summary_with_its_faults():
    html = Footprint(Sequential(Linear(3, 4, name="fc"), Linear(5, 2, name="out")), (2, 3))._repr_html_()
    assert html.startswith("<pre") and "fc" in html and "wanted" in html


def test_a_confusion_shows_a_row_for_each_class():
    confusion = Confusion(2)
    confusion.update(np.array([[2.0, 1.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 1, 0]))
    assert "<tr><td>0</td><td>1</td><td>1</td></tr><tr><td>1</td><td>0</td><td>1</td></tr>" in confusion._repr_html_()

"""TableReader: tables of numbers and categories, from CSV files, DataFrames and dicts."""

import json
import time
from itertools import permutations

import numpy as np
import pytest

from puregraph import Adam, Concat, CrossEntropy, Embedder, Graph, Input, Linear, Relu, Trainer
from puregraph.core.errors import DataError, GraphWarning
from puregraph.data import TableReader, readCsv
from puregraph.data.tablereader import inOrder

TABLE = "age,city,bought\n31,Rome,no\n,Oslo,yes\n20, Rome ,yes\n40,,no\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def message(function, *arguments, **options):
    with pytest.raises(DataError) as found:
        function(*arguments, **options)
    return str(found.value)


# Files --------------------------------------------------------------------------------------------------------


def test_a_file_gives_its_columns_as_text_and_gaps_as_none(table):
    found = readCsv(table)
    assert list(found) == ["age", "city", "bought"]
    assert found["age"].tolist() == ["31", None, "20", "40"] and found["city"].tolist() == [
        "Rome",
        "Oslo",
        "Rome",
        None,
    ]


def test_quotes_newlines_marks_of_order_and_other_delimiters_are_read(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text('\ufeffa;b\n"x;\n""y""";?\n\n1;NA\n', encoding="utf-8")
    found = readCsv(path, delimiter=";", gaps=("?", "NA"))
    assert found["a"].tolist() == ['x;\n"y"', "1"] and found["b"].tolist() == [None, None]


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", "line 1, got an empty file"),
        ("a,b\n", "wanted rows below"),
        ("a,,c\n1,2,3\n", "none for column 2"),
        ("a,b,a\n1,2,3\n", "'a' twice"),
        ("a,b\n1,2\n1,2,3\n", "line 3: wanted 2 fields, got 3"),
        ('a,b\n"1,2\n', "wanted a CSV file"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, text, wanted):
    path = tmp_path / "broken.csv"
    path.write_text(text, encoding="utf-8")
    found = message(readCsv, path)
    assert str(path) in found and wanted in found


def test_a_file_that_is_not_there_or_in_another_encoding_is_named(tmp_path):
    assert "missing.csv" in message(readCsv, tmp_path / "missing.csv")
    (tmp_path / "latin.csv").write_bytes("a\nGen\xe8ve\n".encode("latin-1"))
    assert "latin.csv cannot be read" in message(readCsv, tmp_path / "latin.csv")
    assert readCsv(tmp_path / "latin.csv", encoding="latin-1")["a"].tolist() == ["Gen\xe8ve"]


# Fitting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill, age", [("mean", 91 / 3), ("median", 31), ("zero", 0)])
def test_gaps_are_filled_by_the_stated_rule(table, fill, age):
    reader = TableReader(numbers="age", categories="city", classes="bought", fill=fill).fit(table)
    data = reader.data(table)
    assert data["numbers"].dtype == np.float32 and data["city"].dtype == np.int64
    np.testing.assert_allclose(data["numbers"], [[31], [age], [20], [40]], rtol=1e-6)
    assert data["city"].tolist() == [2, 1, 2, 0] and reader.sizes == {"city": 3}
    assert reader.target(table).tolist() == [0, 1, 1, 0] and reader.names == ["no", "yes"]


def test_new_tables_are_read_as_the_fitted_one_was():
    reader = TableReader(numbers=["x", "y"], categories=["c"], fill="mean", scale=True)
    reader.fit({"x": [1.0, 3.0], "y": [5, 5], "c": ["b", "a"]})
    with pytest.warns(GraphWarning, match="1 of 2 rows"):
        data = reader.data({"x": [5.0, np.nan], "y": [6, 5], "c": ["z", "b"]})
    np.testing.assert_array_equal(data["numbers"], [[3, 1], [0, 0]])
    assert data["c"].tolist() == [0, 2]


def test_categories_are_in_the_order_of_numbers_and_the_same_for_each_kind_of_value():
    reader = TableReader(categories="c").fit({"c": ["10", "9", "red"]})
    assert reader.vocabulary["c"] == ["9", "10", "red"]
    assert reader.data({"c": np.array([9, 10])})["c"].tolist() == [1, 2]
    assert reader.data({"c": np.array([10.0])})["c"].tolist() == [2]


def test_gaps_and_unknown_categories_are_refused_by_default(table):
    reader = TableReader(numbers="age", categories="city").fit(table)
    assert message(reader.data, table).startswith("column 'age', row 2: wanted a number, got a gap; fill=")
    reader = TableReader(categories="city").fit(table)
    assert "column 'city', row 4: wanted one of Oslo, Rome, got a gap" in message(reader.data, table)
    assert "row 1: wanted one of Oslo, Rome, got 'Bern'" in message(reader.data, {"city": ["Bern"]})


def test_a_class_is_never_filled(table):
    reader = TableReader(classes="bought", fill="mean").fit(table)
    assert "column 'bought', row 2: wanted one of no, yes, got a gap" in message(
        reader.target, {"bought": ["no", None]}
    )


@pytest.mark.parametrize("wrong, got", [("many", "a number, got 'many'"), ("inf", "a finite number, got 'inf'")])
def test_what_is_no_number_is_named(wrong, got):
    assert message(TableReader(numbers="n").fit, {"n": ["1", None, wrong]}) == f"column 'n', row 3: wanted {got}"


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        ("1,234", ("thousands=',')", "decimal=',')")),
        ("-12,345", ("thousands=',')", "decimal=',')")),
        ("1,234.5", ("thousands=',')",)),
        ("1,234,567", ("thousands=',')",)),
        ("1,5", ("decimal=',')",)),
        ("0,234", ("decimal=',')",)),
        ("1,2345", ("decimal=',')",)),
        ("1,23,4", ()),
        ("Rome, 3", ()),
    ],
)
def test_a_comma_that_may_group_digits_is_not_taken_for_the_one_before_a_fraction(text, advised, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(f'n\n"{text}"\n', encoding="utf-8")
    said = message(TableReader(numbers="n").fit, path)
    assert f"column 'n', row 1: wanted a number, got {text!r}" in said
    assert [word for word in ("thousands=',')", "decimal=',')") if word in said] == list(advised)
    assert len(advised) < 2 or "a comma that groups digits" in said and "one before a fraction" in said


def test_columns_of_several_lengths_are_refused_with_their_names_and_lengths():
    reader = TableReader(numbers=["a", "b"], classes="c", categories="d")
    right = {"a": [1, 2, 3], "b": [1, 2, 4], "c": ["x", "y", "x"], "d": [1, 1, 2], "unread": [1, 2], "title": "t"}
    assert "got 3 samples of 'a', 2 of 'b'" in message(reader.fit, {**right, "b": [1, 2]})
    reader.fit(right)
    assert "got 3 samples of 'a', 2 of 'b'" in message(reader.data, {**right, "b": np.ones(2)})
    assert "got 3 samples of 'a', 4 of 'd'" in message(reader.data, {**right, "d": [1] * 4})
    assert "got 3 samples of 'a', 1 of 'c'" in message(reader.target, {**right, "c": ["x"]})
    quantities = TableReader(quantities=["a", "b"])
    assert "got 3 samples of 'a', 2 of 'b'" in message(quantities.target, {"a": [1, 2, 3], "b": [1, 2]})


def test_what_cannot_be_a_table_is_refused(table):
    assert "wanted a column 'town', the table has age, city, bought" in message(
        TableReader(categories="town").fit, table
    )
    assert "DataFrame, got int" in message(TableReader(numbers="age").fit, 3)
    assert "only gaps" in message(TableReader(numbers="n").fit, {"n": [None, None]})
    assert "it is not fitted yet" in message(TableReader(numbers="n").data, {"n": [1]})
    assert "'a' twice" in message(TableReader, numbers=["a"], categories=["a"])
    assert "got none" in message(TableReader)
    assert "wanted the column of the target" in message(TableReader(numbers="n").target, {"n": [1]})
    assert "one value for each row" in message(TableReader(numbers="n").fit, {"n": np.ones((2, 2))})


def test_what_was_fitted_is_saved_and_loaded(table, tmp_path):
    reader = TableReader(numbers="age", categories="city", classes="bought", fill="mean", scale=True).fit(table)
    reader.save(tmp_path / "columns.json")
    again = TableReader.load(tmp_path / "columns.json")
    for name, array in reader.data(table).items():
        np.testing.assert_array_equal(again.data(table)[name], array)
    assert again.names == reader.names and again.target(table).tolist() == reader.target(table).tolist()
    assert "table.csv: wanted a file of TableReader.save" in message(TableReader.load, table)


FORGED = [
    ("[]", "list indices must be"),
    ('{"vocabulary": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deep|more"),
    ({"means": [float("nan")]}, "NaN is not allowed in JSON"),
    ({"means": [1e39]}, "means, column 'age': wanted a finite number, got 1e.39"),
    ({"means": [10**400]}, "means, column 'age': wanted a finite number, got 1000"),
    ({"means": ["30"]}, "means, column 'age': wanted a finite number, got '30'"),
    ({"means": 30.0}, "means: wanted 1 number, got 30.0"),
    ({"means": []}, r"means: wanted 1 number, got \[\]"),
    ({"deviations": [0.0]}, "deviations, column 'age': wanted a number above 0, got 0.0"),
    ({"deviations": [-1.0]}, "deviations, column 'age': wanted a number above 0, got -1.0"),
    ({"deviations": [True]}, "deviations, column 'age': wanted a number above 0, got True"),
    ({"fills": [None]}, "fills, column 'age': wanted a finite number, got None"),
    ({"fills": [1.0, 2.0]}, "fills: wanted 1 number, got"),
    ({"vocabulary": {"city": ["Rome"]}}, "vocabulary: wanted the columns city, bought, got"),
    ({"vocabulary": ["city", "bought"]}, "vocabulary: wanted the columns city, bought, got"),
    (
        {"vocabulary": {"city": ["Rome", "Oslo", "Rome"], "bought": []}},
        "column 'city', entry 3: wanted a new text, got 'R",
    ),
    ({"vocabulary": {"city": ["Rome", 3], "bought": []}}, "column 'city', entry 2: wanted a new text, got 3"),
    ({"vocabulary": {"city": "Rome", "bought": []}}, "column 'city': wanted a list of texts, got 'Rome'"),
    ({"gapped": ["age"]}, r"gapped: wanted some of the columns city, bought, got \['age'\]"),
    ({"gapped": {"city": 1}}, "gapped: wanted some of the columns city, bought"),
    ({"numbers": [1]}, "numbers"),
    ({"scale": "yes"}, "scale"),
    ({"fill": "most"}, "fill"),
]


@pytest.mark.parametrize("number", range(len(FORGED)))
def test_settings_that_no_fit_gives_are_refused_with_column_and_entry(table, tmp_path, number):
    change, wanted = FORGED[number]
    path = tmp_path / "columns.json"
    TableReader(numbers="age", categories="city", classes="bought", fill="mean", scale=True).fit(table).save(path)
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=f"columns.json: wanted a file of TableReader.save, got .*({wanted})"):
        TableReader.load(path)


@pytest.mark.parametrize("value", ["1e39", "-1e39", 1e39, 10**400, "1e400"])
def test_a_number_that_would_become_infinite_is_refused_with_column_and_row(value):
    wanted = r"column 'n', row 2: wanted a (number up to 3.4e38, which float32 can hold|finite number), got "
    for name in ("numbers", "quantities"):
        reader = TableReader(**{name: "n"}, categories="c").fit({"n": [1.0, 2.0], "c": ["a", "b"]})
        with pytest.raises(DataError, match=wanted):
            (reader.data if name == "numbers" else reader.target)({"n": [1.0, value], "c": ["a", "b"]})
    with pytest.raises(DataError, match=wanted):
        TableReader(numbers="n").fit({"n": [1.0, value]})
    narrow = TableReader(numbers="n", scale=True).fit({"n": [0.0, 1e-20]})
    with pytest.raises(DataError, match=wanted):
        narrow.data({"n": [1.0, 1e30]})


def test_complex_numbers_are_no_numbers():
    wanted = "column 'n': wanted numbers, got complex128: give the real and the imaginary part as two columns"
    assert message(TableReader(numbers="n").fit, {"n": np.array([1j, 2])}) == wanted
    assert message(TableReader(numbers="n").fit, {"n": ["1", "1j"]}) == "column 'n', row 2: wanted a number, got '1j'"


def test_a_constant_column_is_scaled_to_0_though_its_mean_is_rounded():
    reader = TableReader(numbers="n", scale=True).fit({"n": [0.1] * 3})
    assert reader.data({"n": [0.1, 1.1]})["numbers"].tolist() == [[0], [1]]


def test_a_category_called_nan_has_one_place_in_the_order():
    orders = {tuple(sorted(names, key=inOrder)) for names in permutations(["3", "nan", "1", "2"])}
    assert orders == {("1", "2", "3", "nan")}


def test_a_table_of_many_columns_takes_linear_time(tmp_path):
    names = [f"c{i}" for i in range(30_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n", encoding="utf-8")
    started = time.process_time()
    found = readCsv(path)
    TableReader(numbers=names)
    reader = TableReader(numbers=names[::3])
    assert reader.fit(found).data(found)["numbers"].shape == (1, 10_000)
    assert "the table has c0, c1, " in (said := message(TableReader(numbers="d").fit, found)) and len(said) < 300
    assert (
        time.process_time() - started < 4
    )  # comparing all names with all takes more than that for each of three passes


# DataFrames ---------------------------------------------------------------------------------------------------


def test_a_dataframe_gives_what_the_file_gives(table):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(table, skipinitialspace=True)
    frame["city"] = frame["city"].str.strip()
    reader = TableReader(numbers="age", categories="city", classes="bought", fill="median").fit(table)
    for given in (
        frame,
        frame.convert_dtypes(),
        frame.astype({"city": "category"}),
        frame.set_index("bought", drop=False),
    ):
        for name, array in reader.data(given).items():
            np.testing.assert_array_equal(array, reader.data(table)[name])
        assert reader.target(given).tolist() == [0, 1, 1, 0]
        assert TableReader(numbers="age", categories="city", fill="median").fit(given).sizes == reader.sizes


def test_whole_numbers_with_gaps_are_the_categories_that_they_were():
    pandas = pytest.importorskip("pandas")
    reader = TableReader(categories="c", fill="zero").fit(pandas.DataFrame({"c": [3, 12]}))
    assert reader.data(pandas.DataFrame({"c": [12, None, 3]}))["c"].tolist() == [2, 0, 1]


def test_a_network_learns_from_a_table(rng):
    city = rng.integers(0, 8, 400)
    table = {
        "age": rng.uniform(20, 60, 400),
        "city": [f"city {c}" for c in city],
        "bought": np.where(city > 3, "yes", "no"),
    }
    reader = TableReader(numbers="age", categories="city", classes="bought", scale=True).fit(table)
    numbers, town = Input(name="numbers").node(), Input(name="city", dtype=np.int64).node()
    h = Relu()(Linear(5, 8)(Concat(axis=1)(numbers, Embedder(reader.sizes["city"], 4)(town))))
    trainer = Trainer(
        Graph([numbers, town], Linear(8, 2)(h)), CrossEntropy(), Adam(3e-2), batchsize=32, progress="none"
    )
    assert trainer.train(reader.data(table), reader.target(table), epochs=8)[-1]["loss"] < 0.1


def test_a_reader_shows_which_columns_it_reads():
    reader = TableReader(numbers="age", categories=["city"], classes="bought")
    assert repr(reader) == "TableReader(numbers=['age'], categories=['city'], classes='bought')"
    assert repr(TableReader(["age"])) == "TableReader(numbers=['age'])"


# What could be taken for something else ----------------------------------------------------------------------------


def test_dates_are_no_numbers():
    dates = np.array(["2026-01-01", "2026-03-01", "2026-04-01"], "datetime64[D]")
    for column in (dates, dates.astype("datetime64[ns]"), dates - dates[0]):
        text = message(TableReader(numbers="day").fit, {"day": column})
        assert "column 'day': wanted numbers, got" in text and "np.timedelta64(1, 'D')" in text


@pytest.mark.parametrize(
    "column", [np.linspace(1.5, 99.7, 60), np.arange(60) * 7, [f"{x}" for x in np.linspace(0.5, 9.3, 60)]]
)
def test_numbers_to_be_predicted_are_no_classes(column):
    text = message(TableReader(classes="income").fit, {"income": column})
    assert "wanted classes, got 60 different numbers" in text and "quantities='income'" in text


def test_many_classes_are_classes():
    for column in (np.arange(60).repeat(3), [f"word {i}" for i in range(60)], [0.5, 1.5, 2.5] * 20, np.arange(20)):
        assert len(TableReader(classes="c").fit({"c": column}).names) == len(set(map(str, column)))


def test_quantities_are_a_target_as_they_are(tmp_path):
    table = {"age": [30, 40], "price": [1.5, 2.5], "area": ["70", "80"]}
    reader = TableReader(numbers="age", quantities=["price", "area"]).fit(table)
    target = reader.target(table)
    assert target.dtype == np.float32 and target.tolist() == [[1.5, 70], [2.5, 80]]
    reader.save(tmp_path / "reader.json")
    assert TableReader.load(tmp_path / "reader.json").target(table).tolist() == target.tolist()
    assert "row 2: wanted a number, got a gap: leave out rows" in message(reader.target, {**table, "price": [1, None]})
    assert "got both" in message(TableReader, classes="age", quantities="price")


def test_categories_that_fit_has_not_seen_are_told():
    reader = TableReader(categories="city", fill="mean").fit({"city": ["01", "02"]})
    with pytest.warns(GraphWarning, match="'city': 2 of 2 rows .* .1, 2; known are 01, 02.: .* has learnt nothing"):
        assert reader.data({"city": [1, 2]})["city"].tolist() == [0, 0]
    gapped = TableReader(categories="city", fill="mean").fit({"city": ["Rome", None]})
    with pytest.warns(GraphWarning, match="1 of 3 rows .*they get the code 0$"):
        assert gapped.data({"city": ["Oslo", "Rome", None]})["city"].tolist() == [0, 1, 0]

"""Operations on arrays: formulas and references in numpy, and their code for CPUs and GPUs."""

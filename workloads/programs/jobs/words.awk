# Counts words and the fields of lines.
{ fields[NF]++; for (i = 1; i <= NF; i++) { times[$i]++; sum += length($i) } if (/fox[0-9]*7/) foxes++ }
END { for (word in times) if (times[word] > most) { most = times[word]; which = word } print which, most, sum, foxes, fields[12] }

# Finds words by regular expressions and counts what they are made of.
use strict;
use warnings;
my (%times, %ends);
open my $file, '<', $ARGV[0] or die "$ARGV[0]: $!";
while (my $line = <$file>) {
    while ($line =~ /\b([a-z ]*?)(\d+)\b/g) {
        $times{$1}++;
        $ends{ substr($1, -1) || '-' } += $2;
    }
    $line =~ s/(\w)(\w+)/$2$1/g;
    $times{ length $line }++;
}
my @most = sort { $times{$b} <=> $times{$a} || $a cmp $b } keys %times;
print "$most[0] $times{$most[0]} ", scalar @most, " ", join(',', map { "$_$ends{$_}" } sort keys %ends), "\n";

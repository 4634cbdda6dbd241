-- The bounds of the histograms of waiting and run times, in seconds: from 2^-13 (an eighth of a millisecond) to 2^20
-- (twelve days), each the one before times the square root of 2. Bin n of a histogram counts the times that are at most
-- bound n and more than the bound before it; the last bin, which has no bound, counts all longer ones.
-- stepwell/values/histogram.py has the same bounds for workers.
create or replace function stepwell.histogram_bounds() returns double precision[]
language sql immutable
as $$
  select array(
    select 2::double precision ^ ((n - 27) / 2::double precision) from generate_series(1, 67) as g (n) order by n
  )
$$;

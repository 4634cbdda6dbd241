-- The sum of two histograms, bin by bin. The shorter one has no more in its missing bins.
create or replace function stepwell.add_histograms(_one integer[], _other integer[]) returns integer[]
language sql immutable
as $$
  select case
    when _other = '{}' then _one
    when _one = '{}' then _other
    else array(
      select least(coalesce(u.one, 0)::bigint + coalesce(u.other, 0), 2147483647)::integer
      from unnest(_one, _other) with ordinality as u (one, other, n)
      order by u.n
    )
  end
$$;
